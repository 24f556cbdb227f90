"""The kernels of the planned models, as a table that ships with perfc.

`benchmarks/collection/kernels.py` writes it from the launch graphs of the models: where
they are measured nothing can be lowered.
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Iterator
from pathlib import Path

from perfc.ir import Record, record_of
from perfc.measurements import shape_of

WORKLOAD_TABLE = Path(__file__).with_name("workload_kernels.csv")
"""Columns op, dtype and params (JSON); the kernels of the most useful models first."""


@functools.cache
def workload_table() -> tuple[tuple[str, str, Record], ...]:
    """Return the op, the dtype and the parameters of each kernel, in order."""
    return tuple(_rows())


@functools.cache
def workload_shapes() -> frozenset[str]:
    """Return the sizes of all of them, as `shape_of` writes them."""
    return frozenset(shape_of(op, params) for op, _, params in workload_table())


def _rows() -> Iterator[tuple[str, str, Record]]:
    with WORKLOAD_TABLE.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            yield row["op"], row["dtype"], record_of(json.loads(row["params"]))
