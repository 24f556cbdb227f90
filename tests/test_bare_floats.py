"""Numbers of the models say where they come from: no bare float in their code."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[1]
FOLDERS = ("costmodels", "traces", "tools")

_BYTES = "bytes of a number of that type"
_SHEETS = "what a sheet may say, or how far its fields may disagree"
_SHOWN = "when a report shows, or rounds"
_DRAWN = "how large a page draws something"
_DEFAULT = "default of an option, which its help shows"

REMAINING = MappingProxyType(
    {
        "costmodels/attention/residual.py": ({3.0}, "range of a feature"),
        "costmodels/collectives/rows.py": ({1.02}, "step of a difference quotient"),
        "costmodels/gemm/kernels.py": ({1.5, 3.0, 6.0}, "exponents with a short form"),
        "costmodels/gemm/residual.py": ({6.0}, "operand sets in bytes, of a feature"),
        "costmodels/locality/inclusion_probabilities.py": (
            {0.12, 50.0},
            "nodes of a quadrature",
        ),
        "costmodels/locality/lookups.py": ({0.25, 8.0}, _BYTES),
        "costmodels/locality/reuse.py": (
            {0.2316419, 0.31938153, 0.356563782, 1.330274429, 1.781477937}
            | {1.821255978, 16.0},
            "the normal distribution's tail (Abramowitz and Stegun, 26.2.17)",
        ),
        "costmodels/locality/row_cache.py": ({700.0}, "range of a bisection"),
        "costmodels/conv/lower_bound.py": ({2.25}, "Winograd's multiplications saved"),
        "costmodels/pricing/intervals.py": (
            {0.03, 30.0},
            "range of sizes of `fitted/intervals.toml`",
        ),
        "costmodels/sheets/nearest_target.py": (
            {0.7},
            "how alike a misspelled name is",
        ),
        "costmodels/sheets/profile.py": ({64.0}, "what a profile may say"),
        "costmodels/sheets/sheet.py": ({0.4}, "how alike a misspelled name is"),
        "costmodels/sheets/sheet_fields.py": (
            {0.03125, 0.05, 0.25, 0.985, 1.969, 3.938, 7.563},
            f"rates of PCI Express; {_SHEETS}",
        ),
        "costmodels/sheets/sheet_physics.py": (
            {0.0012, 0.035, 0.15, 0.75, 0.8, 1.01, 1.1},
            _SHEETS,
        ),
        "costmodels/sheets/tier_section.py": ({1.05}, _SHEETS),
        "costmodels/sheets/system_sheet.py": ({9.0}, "a compute capability"),
        "tools/calibration/network_calibration.py": (
            {0.02, 0.05, 8.0},
            "range and stiffness of a fit",
        ),
        "tools/cli/calibrate.py": ({1.8}, _DEFAULT),
        "tools/cli/lists.py": ({8e-9}, "bytes a second in Gbit/s"),
        "tools/cli/measure.py": ({5.0}, _DEFAULT),
        "tools/cli/shard.py": ({30.0}, _DEFAULT),
        "tools/pages/tables.py": ({0.25, 0.3, 0.6}, _DRAWN),
        "tools/pages/timeline.py": ({0.75}, _DRAWN),
        "tools/report_page/drawn.py": ({0.35, 1.02}, _DRAWN),
        "tools/reports/nodes.py": ({1.645}, "quantile of the normal distribution"),
        "tools/reports/numbers.py": ({0.9995}, _SHOWN),
        "tools/reports/sensitivity.py": ({0.0005}, _SHOWN),
        "tools/reports/table.py": ({0.005, 0.03}, _SHOWN),
        "tools/reports/variants.py": ({0.02}, _SHOWN),
    }
)
"""Floats that are no constants of a model, by file, with the reason."""


def _is_plain(value: float) -> bool:
    """Whether a number says nothing about a machine: 0, 1/2, 1, 2, 4, powers of ten."""
    if value in {0.0, 0.5, 1.0, 2.0, 4.0}:
        return True
    return value > 0 and math.isclose(value, 10.0 ** round(math.log10(value)))


def _bare(source: str) -> Iterator[float]:
    """Yield the floats that stand in code, signs aside."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield node.value


def _found(path: Path) -> set[float]:
    return {value for value in _bare(path.read_text("utf-8")) if not _is_plain(value)}


def test_code_has_no_bare_floats() -> None:
    """A constant of a model lies in `fitted/constants`; what remains is listed."""
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix(): _found(path) for path in files}

    listed = {name: values for name, (values, _) in REMAINING.items()}

    assert listed == {name: values for name, values in found.items() if values}


def test_bare_floats_are_seen() -> None:
    """Defaults, tuples and signs hide none; what is plain is not counted."""
    source = "A = -0.31\ndef f(x=2.5e-6):\n    return x * (1e-6, 4.0, 0.5, 7.0)[0]\n"

    assert {0.31, 2.5e-6, 7.0} == {v for v in _bare(source) if not _is_plain(v)}
