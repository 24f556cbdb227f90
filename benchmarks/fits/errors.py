"""What kernels are off in other sessions and on other boards, a step of `make fit`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training.elsewhere import (
    GEMM,
    OTHERS,
    Errors,
    fit_errors,
    library_pairs,
    sessions_elsewhere,
)

from perfc.costmodels.constants import CONSTANTS_FOLDER

FILE = CONSTANTS_FOLDER / "errors.toml"

_HEAD = """\
# Written by `make fit`; do not edit. What kernels are off in other sessions and on
# other boards than those fitted: standard deviations of logarithms, see
# `benchmarks/training/elsewhere.py`.

on = ["cuda"]
"""

_SOURCES: Mapping[str, str] = {
    "session": """\
what all kernels of a kind are off in a session, at size 1 (as long as memory moves
1e8 bytes), falling with the root of the size: the root mean square of the sessions'
medians, and of kernels that move bytes what two libraries differ by on one GPU""",
    "board": """\
what all kernels of a kind are off on a board, whatever their size: the root mean square
over boards of the median of kernels of size 1 and more""",
    "elsewhere": """\
what each kernel is off alone in another session, at size 1, falling with the root of
the size: the least with which nine in ten are inside""",
}

_ROWS = """\
{sessions} sessions on {boards} boards of chips with rows: {kernels} distinct kernels of
traces published with PARAM, HolisticTraceAnalysis, TraceLens (MIT), by Lin et al.
(BSD-3), and of perfc's own rows of an H100"""


def set_errors(data: Path) -> None:
    """Write `fitted/constants/errors.toml`."""
    sessions, pairs = sessions_elsewhere(data), library_pairs(data)
    found: dict[str, Errors] = {}
    for kind, of_one_board in ((OTHERS, pairs), (GEMM, ())):
        mine = [session for session in sessions if session.kind == kind]
        found[kind] = fit_errors(mine, of_one_board)
        print(f"errors elsewhere, {kind}: {found[kind]}")
    rows = _ROWS.format(
        sessions=len({session.name for session in sessions}),
        boards=len({session.board for session in sessions}),
        kernels=sum(len(session.logs) for session in sessions),
    )
    _write(found, rows)


def _write(errors: Mapping[str, Errors], rows: str) -> None:
    lines = [_HEAD]
    columns = {"session": "session", "board": "board", "elsewhere": "own"}
    for name, column in columns.items():
        values = ", ".join(
            f"{kind} = {getattr(each, column):.3g}" for kind, each in errors.items()
        )
        lines += [
            f"[sigma_{name}]",
            f"value = {{ {values} }}",
            'kind = "fitted"',
            f"source = '''{_SOURCES[name]}'''",
            f"rows = '''{rows}'''",
            "",
        ]
    FILE.write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
