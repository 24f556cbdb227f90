"""Measured rows as the kernels that cost models price: sizes and least work."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from perfc.costmodels import COLLECTIVES, KernelTable
from perfc.costmodels.kernels import ColumnTable, Indices, KernelColumns
from perfc.ir import Kernel, PerfcError, Record, Work, record_of
from perfc.ir.kernels import check_params
from perfc.ir.support import VerifyError
from perfc.measurements.flat_work import FLAT_WORK
from perfc.measurements.nested_work import NESTED_WORK
from perfc.measurements.row import Measurement
from perfc.measurements.schema import MeasurementError
from perfc.measurements.sizes import Column, Sizes

BYTES: Mapping[str, float] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "fp8_dynamic": 1,
    "fp8_block": 1,
    "int8": 1,
    "int64": 8,
    "bool": 1,
    "w8a16": 1,
    "w4a16": 0.5,
    "nvfp4": 0.5,
}
"""Bytes of an element, by dtype; of a weight where operands differ."""

_GEMM_MATH: Mapping[str, str] = {
    "fp8_dynamic": "fp8",
    "fp8_block": "fp8",
    "w8a16": "bf16",
    "w4a16": "bf16",
}
"""Math of GEMMs where it is not the dtype: narrow weights are widened first."""


def bytes_of(dtype: str) -> float:
    """Return the bytes of an element."""
    try:
        return BYTES[dtype]
    except KeyError:
        msg = f"unknown dtype {dtype!r}; known: {', '.join(BYTES)}"
        raise MeasurementError(msg) from None


def kernel_of(row: Measurement) -> Kernel:
    """Return the signature of a measured row, with its compulsory work."""
    return _signature(row.op, row.dtype, row.params)


def _signature(op: str, dtype: str, params: Record) -> Kernel:
    _check_amounts(op, params)
    if op not in KERNEL_OPS:
        msg = f"unknown op {op!r}; known: {', '.join(KERNEL_OPS)}"
        raise MeasurementError(msg)
    size = bytes_of(dtype)
    _check_declared(op, params)
    if op in FLAT_WORK:
        return Kernel(
            op, _stored(dtype), _mode(op, dtype), params, _flat_work(op, dtype, params)
        )
    try:
        work = NESTED_WORK[op](params, size, dtype)
    except (PerfcError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        msg = f"{op} {params}: {error}"
        raise MeasurementError(msg) from None
    return Kernel(op, _stored(dtype), _mode(op, dtype), params, work)


def _check_declared(op: str, params: Record) -> None:
    """Refuse what a kernel of *op* would refuse, as a fault of the row."""
    try:
        check_params(op, params)
    except VerifyError as error:
        raise MeasurementError(str(error)) from None


def _different(column: Column) -> list[Any]:
    if column.dtype.kind in "bi":
        column = column[:1]
    values = column.tolist()
    return values if column.dtype.kind == "O" else [*dict.fromkeys(values)]


def _check_amounts(op: str, value: object, name: str = "") -> None:
    """Refuse numbers that are no sizes: negative, infinite, beyond 64 bits."""
    if isinstance(value, Record):
        for key, inner in value.items():
            _check_amounts(op, inner, key)
    elif isinstance(value, tuple):
        for item in cast("tuple[object, ...]", value):
            _check_amounts(op, item, name)
    elif isinstance(value, int | float) and not _least(name) <= value < _TOO_MANY:
        msg = f"{op}: {name} is {value:.6g}, expected a number from 0 to 2**63"
        raise MeasurementError(msg)


def _least(name: str) -> float:
    """Return the least that a parameter can be: axes may count from the last."""
    return -_TOO_MANY if name in {"axis", "axes", "perm"} else 0


def _flat_work(op: str, dtype: str, params: Record) -> Work:
    try:
        amounts = FLAT_WORK[op](Sizes.of([params]), bytes_of(dtype), dtype)
    except MeasurementError as error:
        msg = f"{op} {params}: {error}"
        raise MeasurementError(msg) from None
    flops, read, written = (float(amount[0]) for amount in amounts)
    return Work(round(flops), math.ceil(read), math.ceil(written))


def kernel_columns(
    op: str, dtype: str, params: Sequence[Mapping[str, Any]]
) -> KernelColumns:
    """Return the signatures of rows that give the same parameters, as columns.

    Args:
        op: One whose parameters are plain numbers and words.
        dtype: Of all of them.
        params: Parsed JSON, each with the keys of the first.

    """
    sizes = Sizes.of(params)
    # Refuse the same of many rows: each different word, fraction or list once.
    # Whole numbers and flags of a column are alike in type: the first stands for all.
    different = {name: _different(column) for name, column in sizes.columns.items()}
    for at in range(max(map(len, different.values()), default=0)):
        row = {
            name: found[min(at, len(found) - 1)] for name, found in different.items()
        }
        _check_declared(op, record_of(row))
    flops, read, written = FLAT_WORK[op](sizes, bytes_of(dtype), dtype)
    return KernelColumns(
        op=op,
        dtype=_stored(dtype),
        math=_mode(op, dtype),
        params=sizes.columns,
        flops=flops,
        bytes_read=np.ceil(read),
        bytes_written=np.ceil(written),
    )


def _mode(op: str, dtype: str) -> str:
    if op in _GEMM_LIKE:
        return _GEMM_MATH.get(dtype, dtype)
    if op in COLLECTIVES:
        return ""
    return "fp64" if dtype == "fp64" else "fp32"


def _stored(dtype: str) -> str:
    return "fp32" if dtype == "tf32" else dtype


_GEMM_LIKE = frozenset({"gemm", "conv2d", "attention"})
_TOO_MANY = 2.0**63

KERNEL_OPS = (*FLAT_WORK, *NESTED_WORK)
"""Ops of measured rows that are kernels, copies or collectives."""


Part = tuple[Indices, KernelTable]
"""Some rows and their signatures."""


def kernel_tables(
    op: str, dtype: str, params: Sequence[Mapping[str, Any]]
) -> tuple[list[Part], dict[int, str]]:
    """Return the signatures of rows of one op and dtype, in few tables.

    Rows that give the same parameters are columns of one table.

    Returns:
        The tables, each with the numbers of its rows, and why a row has none, by its
        number.

    """
    by_names: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, names in enumerate(map(tuple, params)):
        by_names[names].append(row)
    parts: list[Part] = []
    faults: dict[int, str] = {}
    for rows in by_names.values():
        chosen = [params[row] for row in rows]
        try:
            if op in FLAT_WORK:
                table = ColumnTable.of(kernel_columns(op, dtype, chosen))
                parts.append((np.array(rows), table))
                continue
        except MeasurementError:
            pass  # some row is at fault: which, and why, is found one by one
        kept: list[int] = []
        kernels: list[Kernel] = []
        for row, given in zip(rows, chosen, strict=True):
            try:
                kernels.append(_signature(op, dtype, record_of(given)))
                kept.append(row)
            except MeasurementError as error:
                faults[row] = str(error)
        parts += [(np.array(kept), KernelTable(kernels))] if kept else []
    return parts, faults
