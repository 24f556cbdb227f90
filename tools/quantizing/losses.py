"""What quantising each op costs in accuracy, as somebody measured it: a CSV file."""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfc.ir import PerfcError
from perfc.ir.support import read_whole

Losses = Mapping[str, Mapping[str, float]]
"""Loss of each op, by the type that it is stored in."""

_COLUMNS = "op, loss, and type if ops are to choose among several"
_SHOWN = 5


def read_losses(
    path: Path, asked: Mapping[str, str], aliases: Mapping[str, str]
) -> Losses:
    """Read a table of losses.

    Args:
        path: A CSV file with the columns `op` and `loss`, and `type` if an op has a
            loss for each of several.
        asked: The ops that are to be quantised, and the type of each where the file has
            no types.
        aliases: Other names of ops, and their own.

    """
    found: dict[str, dict[str, float]] = {}
    for line, row in _rows(path):
        op = aliases.get(row["op"].strip(), row["op"].strip())
        where = f"{path}, line {line}"
        if op not in asked:
            close = difflib.get_close_matches(op, asked, n=1)
            hint = f"did you mean {close[0]}?" if close else _listed(list(asked))
            msg = f"{where}: op {op!r} is none that would be quantized; {hint}"
            raise PerfcError(msg)
        dtype = (row.get("type") or "").strip() or asked[op]
        if dtype in found.setdefault(op, {}):
            msg = f"{where}: op {op!r} has a loss in {dtype} already"
            raise PerfcError(msg)
        found[op][dtype] = _loss(row["loss"], where)
    if missing := [op for op in asked if op not in found]:
        msg = (
            f"{path} lacks {_listed(missing)}: give a loss of each op that would be "
            "quantized, or keep it in its type (--keep)"
        )
        raise PerfcError(msg)
    return found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, ... ({len(names)})"


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    raw = read_whole(path, PerfcError)
    try:
        text = raw.decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text), strict=True)
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        msg = f"{path}: expected a CSV file with the columns {_COLUMNS}: {error}"
        raise PerfcError(msg) from None
    if not {"op", "loss"} <= set(names):
        msg = (
            f"{path} has the columns {', '.join(names) or 'none'}; expected {_COLUMNS}"
        )
        raise PerfcError(msg)
    for line, row in rows:
        if None in row or None in row.values():
            msg = (
                f"{path}, line {line}: expected {len(names)} cells, as the heading has"
            )
            raise PerfcError(msg)
    if not rows:
        msg = f"{path} has no row: give a loss of each op that would be quantized"
        raise PerfcError(msg)
    return rows


def _loss(text: str, where: str) -> float:
    try:
        loss = float(text)
    except ValueError:
        loss = math.nan
    if not 0 <= loss < math.inf:
        msg = f"{where}: loss {text.strip()!r}: expected a number, 0 or more"
        raise PerfcError(msg)
    return loss
