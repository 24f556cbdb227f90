"""Signatures whose numbers are many, as columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from perfc.costmodels.kernels.columns import Column, ColumnTable, KernelColumns
from perfc.costmodels.kernels.many_numbers import Many, Truths
from perfc.costmodels.kernels.signatures import Indices
from perfc.ir import Kernel, Record

_Form: TypeAlias = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""Op, dtype, math mode, and names of parameters with the kinds of their columns."""


def configurations(kernel: Kernel) -> int:
    """Return how many configurations a kernel's numbers are of; 1 without many."""
    work = kernel.work
    amounts = work.flops, work.bytes_read, work.bytes_written
    return max(map(_configurations, (*kernel.params.values(), *amounts)))


def token(kernel: Kernel) -> Hashable:
    """Return a key that kernels share which are equal in every configuration."""
    work, params = kernel.work, kernel.params
    return (
        *(kernel.op, kernel.dtype, kernel.math, kernel.known),
        tuple([(name, _token(value)) for name, value in params.items()]),
        *map(_token, (work.flops, work.bytes_read, work.bytes_written)),
    )


def kernels_of(kernel: Kernel, count: int) -> Iterator[Kernel]:
    """Yield the kernel of each of so many configurations."""
    work = kernel.work
    amounts = [work.flops, work.bytes_read, work.bytes_written]
    columns = zip(
        _spread(kernel.params, count),
        *(_spread(amount, count) for amount in amounts),
        strict=True,
    )
    for params, *each in columns:
        yield Kernel(
            kernel.op,
            kernel.dtype,
            kernel.math,
            params,
            type(work)(*each),
            kernel.known,
        )


def column_table(
    kernels: Sequence[Kernel], counts: Sequence[int]
) -> tuple[ColumnTable, list[Indices]]:
    """Return kernels of known ops as a table, and which of its rows each one has.

    Args:
        kernels: Kernels with many numbers; at least one.
        counts: In how many configurations each one is.

    """
    forms: dict[_Form, list[int]] = {}
    for number, kernel in enumerate(kernels):
        kinds = tuple([(name, _kind(value)) for name, value in kernel.params.items()])
        forms.setdefault((kernel.op, kernel.dtype, kernel.math, kinds), []).append(
            number
        )
    parts: list[KernelColumns] = []
    rows: list[Indices] = [np.empty(0, dtype=np.intp)] * len(kernels)
    row = 0
    for members in forms.values():
        parts.append(_part([kernels[m] for m in members], [counts[m] for m in members]))
        for member in members:
            rows[member] = np.arange(row, row + counts[member])
            row += counts[member]
    return ColumnTable.of(*parts), rows


def _part(kernels: Sequence[Kernel], counts: Sequence[int]) -> KernelColumns:
    first = kernels[0]

    def column(read: Callable[[Kernel], Any]) -> Column:
        pairs = zip(kernels, counts, strict=True)
        return np.concatenate([_column(read(k), count) for k, count in pairs])

    def param(name: str) -> Column:
        return column(lambda kernel: kernel.params[name])

    return KernelColumns(
        op=first.op,
        dtype=first.dtype,
        math=first.math,
        params={name: param(name) for name in first.params},
        flops=column(lambda k: k.work.flops).astype(np.float64),
        bytes_read=column(lambda k: k.work.bytes_read).astype(np.float64),
        bytes_written=column(lambda k: k.work.bytes_written).astype(np.float64),
    )


def _configurations(value: object) -> int:
    if type(value) is Many:
        return len(value.values)
    if type(value) is Truths:
        return len(value.mask)
    if type(value) is tuple:
        return max(map(_configurations, cast("tuple[object, ...]", value)), default=1)
    if type(value) is Record:
        return max(map(_configurations, value.values()), default=1)
    return 1


def _kind(value: object) -> str:
    """Return the kind of a parameter's column, as numpy names it."""
    if type(value) is Many:
        return value.values.dtype.kind
    if type(value) is Truths:
        return "b"
    return _KINDS.get(type(value), "O")


_KINDS: Mapping[type, str] = {bool: "b", int: "i", float: "f", str: "U"}


def _column(value: object, count: int) -> Column:
    if type(value) is Many:
        return value.values
    if type(value) is Truths:
        return value.mask
    if type(value) in _KINDS:
        return np.full(count, cast("float", value))
    return np.fromiter(_spread(value, count), dtype=np.object_, count=count)


def _spread(value: object, count: int) -> Sequence[Any]:
    """Return a value as it is in each of so many configurations."""
    if type(value) is Many:
        return [*value.values.tolist()]
    if type(value) is Truths:
        return [*value.mask.tolist()]
    if _configurations(value) == 1:
        return [value] * count
    if type(value) is Record:
        names = list(value)
        items = (_spread(item, count) for item in value.values())
        each = zip(*items, strict=True)
        return [Record(dict(zip(names, one, strict=True))) for one in each]
    listed = cast("tuple[object, ...]", value)
    return list(zip(*(_spread(item, count) for item in listed), strict=True))


def _token(value: object) -> Hashable:
    if type(value) is Many:
        return value.values.dtype.kind, value.values.tobytes()
    if type(value) is Truths:
        return "b", value.mask.tobytes()
    if type(value) is tuple:
        return tuple(map(_token, cast("tuple[object, ...]", value)))
    if type(value) is Record:
        return tuple([(name, _token(item)) for name, item in value.items()])
    return type(value), value
