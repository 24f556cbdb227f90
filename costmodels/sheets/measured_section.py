"""The section of a profile that holds measured kernels.

    [[measured]]                    kernels that have all but their sizes in common
    op, dtype, math                 as of a kernel
    timing, source                  as in measured rows
    repeated = true                 timed on the same operands all the time, if so
    params = ["m", "n", "k"]        parameters, but for what goes without saying
    rows = ["[9.1, 0.01, 30, 1024, 512, 64]"]

A row is a JSON list: microseconds of the kernel alone, relative uncertainty of that,
how often it was timed, and a value for each parameter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from perfc.costmodels.machine import MeasuredKernel, Signature
from perfc.costmodels.sheets.sheet_fields import quoted, shown
from perfc.ir import PerfcError
from perfc.ir import text as ir_text
from perfc.ir.kernels import BUILTIN_KERNELS
from perfc.ir.support import VerifyError, parse_json

_TEXTS = ("op", "dtype", "math", "timing", "source")
_KEYS = frozenset({*_TEXTS, "repeated", "params", "rows"})
_NUMBERS = 3
_MOST_US, _MOST_SIGMA = 1e9, 10.0

_Table = Mapping[str, object]


def measured_problems(section: object) -> Iterator[str]:
    """Yield the problems of the section."""
    if not isinstance(section, list):
        yield f"measured is {shown(section)}, expected [[measured]]"
        return
    for index, entry in enumerate(cast("list[object]", section), 1):
        yield from (f"measured {index}: {text}" for text in _problems(entry))


def measured_kernels(section: object) -> Iterator[MeasuredKernel]:
    """Yield the kernels of a section without problems."""
    for entry in cast("Sequence[_Table]", section):
        op, dtype, mode, timing, source = (str(entry[key]) for key in _TEXTS)
        names = cast("Sequence[str]", entry["params"])
        for row in cast("Sequence[str]", entry["rows"]):
            microseconds, sigma, n, *values = json.loads(row)
            params = ir_text.record_of(dict(zip(names, values, strict=True)))
            yield MeasuredKernel(
                Signature(op, dtype, mode, params),
                microseconds * 1e-6,
                sigma,
                n,
                timing,
                source,
                entry.get("repeated") is True,
            )


def _problems(entry: object) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{shown(entry)}, expected a table"
        return
    table = cast("_Table", entry)
    for key in table:
        if key not in _KEYS:
            yield f"unknown key {quoted(key)}; it has {', '.join(sorted(_KEYS))}"
    for key in _TEXTS:
        if not isinstance(table.get(key), str):
            yield f"{key} is {shown(table.get(key))}, expected a text"
    if not isinstance(table.get("repeated", False), bool):
        yield f"repeated is {shown(table['repeated'])}, expected true or false"
    names = table.get("params")
    if not _are_texts(names):
        yield f"params is {shown(names)}, expected a list of names"
        return
    yield from _row_problems(table.get("rows"), len(cast("list[str]", names)))
    yield from _undeclared(str(table.get("op")), cast("list[str]", names))


def _undeclared(op: str, names: Sequence[str]) -> Iterator[str]:
    """Yield why no kernel has such parameters; those of plugins may have any."""
    if op in BUILTIN_KERNELS:
        try:
            BUILTIN_KERNELS[op].declared.check_names(dict.fromkeys(names))
        except VerifyError as error:
            yield str(error)


def _row_problems(rows: object, names: int) -> Iterator[str]:
    if not _are_texts(rows) or not rows:
        yield f"rows is {shown(rows)}, expected texts"
        return
    for row in cast("list[str]", rows):
        if not _is_row(row, names):
            values = "value" if names == 1 else "values"
            yield (
                f"rows has {shown(row)}, expected '[us, sigma, n, ...]' and "
                f"{names} {values} of params"
            )
            return


def _is_row(text: str, names: int) -> bool:
    try:
        row = parse_json(text, PerfcError, "", "a row")
    except PerfcError:
        return False
    if not isinstance(row, list):
        return False
    values = cast("list[object]", row)
    if len(values) != _NUMBERS + names:
        return False
    microseconds, sigma, n = values[:_NUMBERS]
    return (
        _is_number(microseconds, _MOST_US)
        and microseconds != 0
        and _is_number(sigma, _MOST_SIGMA)
        and isinstance(n, int)
        and _is_number(n, math.inf)
        and n > 0
    )


def _is_number(value: object, most: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= most


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, str) for each in cast("list[object]", value)
    )
