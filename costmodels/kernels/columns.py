"""Kernel signatures as columns: many rows of one op, none of them an object."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels.protocol import (
    Flags,
    Floats,
    Indices,
    KernelTable,
    Kind,
    Texts,
    number_without,
    text_without,
)
from perfc.costmodels.machine import Target
from perfc.ir import Kernel, Record, Work

Column = NDArray[Any]
"""Numbers, flags or words, one a row."""


@attrs.frozen(eq=False, kw_only=True)
class KernelColumns:
    """Signatures that share op, dtype, math mode and the names of their parameters.

    Attributes:
        op: Canonical name.
        dtype: What tensors are stored in.
        math: Math mode.
        params: Parameters by name; int64, float64, bool or str, shape (rows,) each.
        flops: Shape (rows,); so are the others.
        bytes_read: Compulsory.
        bytes_written: Compulsory.

    """

    op: str
    dtype: str
    math: str
    params: Mapping[str, Column]
    flops: Floats
    bytes_read: Floats
    bytes_written: Floats

    def __len__(self) -> int:
        return len(self.flops)

    def take(self, rows: Indices) -> KernelColumns:
        """Return some of the rows."""
        return attrs.evolve(
            self,
            params={name: column[rows] for name, column in self.params.items()},
            flops=self.flops[rows],
            bytes_read=self.bytes_read[rows],
            bytes_written=self.bytes_written[rows],
        )

    def kernels(self) -> list[Kernel]:
        """Make every kernel."""
        listed = [column.tolist() for column in self.params.values()]
        params = zip(*listed, strict=True) if listed else [()] * len(self)
        work = zip(
            self.flops.tolist(),
            self.bytes_read.tolist(),
            self.bytes_written.tolist(),
            strict=True,
        )
        return [
            Kernel(
                self.op,
                self.dtype,
                self.math,
                Record(dict(zip(self.params, values, strict=True))),
                Work(*map(int, amounts)),
            )
            for values, amounts in zip(params, work, strict=True)
        ]


@attrs.frozen(eq=False)
class _Made(Sequence[Kernel]):
    """Kernels that are made when the first of them is asked for."""

    columns: KernelColumns

    @functools.cached_property
    def _all(self) -> list[Kernel]:
        return self.columns.kernels()

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, at: int) -> Kernel: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Kernel]: ...

    def __getitem__(self, at: int | slice) -> Kernel | Sequence[Kernel]:
        return self._all[at]


@attrs.frozen(eq=False)
class ColumnTable(KernelTable):
    """A table whose rows are columns; make one with `of`.

    Attributes:
        columns: The rows.

    """

    columns: KernelColumns

    @classmethod
    def of(cls, columns: KernelColumns) -> ColumnTable:
        """Return the table of *columns*."""
        return cls(_Made(columns), columns)

    @functools.cached_property
    def flops(self) -> Floats:
        """Flops of each kernel."""
        return self.columns.flops

    @functools.cached_property
    def bytes_read(self) -> Floats:
        """Bytes each kernel must read."""
        return self.columns.bytes_read

    @functools.cached_property
    def bytes_written(self) -> Floats:
        """Bytes each kernel must write."""
        return self.columns.bytes_written

    @functools.cached_property
    def op(self) -> Texts:
        """Canonical name of each kernel."""
        return np.full(len(self), self.columns.op)

    @functools.cached_property
    def dtype(self) -> Texts:
        """What each kernel's tensors are stored in."""
        return np.full(len(self), self.columns.dtype)

    @functools.cached_property
    def math(self) -> Texts:
        """Math mode of each kernel."""
        return np.full(len(self), self.columns.math)

    @functools.cached_property
    def known(self) -> Flags:
        """Whether each kernel's op has a model: measured rows are of known ops."""
        return np.ones(len(self), dtype=np.bool_)

    @functools.cached_property
    def kinds(self) -> tuple[list[Kind], Indices]:
        """The op, dtype and math mode of all kernels."""
        kind = (self.columns.op, self.columns.dtype, self.columns.math)
        return [kind], np.zeros(len(self), dtype=np.intp)

    def param(self, name: str, default: float | None = None) -> Floats:
        """Return one numeric parameter of every kernel."""
        column = self.columns.params.get(name)
        if column is None or column.dtype.kind not in "bif":
            if default is None:
                default = number_without(self.columns.op, name)
            return np.full(len(self), float(default))
        return column.astype(np.float64)

    def text(self, name: str, default: str | None = None) -> Texts:
        """Return one parameter of every kernel that is a word."""
        column = self.columns.params.get(name)
        if column is None or column.dtype.kind != "U":
            if default is None:
                default = text_without(self.columns.op, name)
            return np.full(len(self), default)
        return column

    def given(self, name: str) -> Flags:
        """Whether every kernel has a parameter, not none, zero, false or empty."""
        column = self.columns.params.get(name)
        if column is None:
            return np.zeros(len(self), dtype=np.bool_)
        if column.dtype.kind == "U":  # which NumPy 1 reads as numbers
            return np.asarray(column != "", dtype=np.bool_)
        return column.astype(np.bool_)

    def peak_flops_per_s(self, target: Target) -> Floats:
        """Peak rate of *target* in the math mode of all kernels, FLOP/s."""
        return np.full(len(self), target.peak(self.columns.math))

    def runs_on(self, target: Target) -> Flags:
        """Whether a target has the math mode of all kernels."""
        return np.full(len(self), self.columns.math in target.device.flops_per_s)

    def with_param(self, name: str, values: Flags | Floats | Texts) -> KernelTable:
        """Return the table with one more parameter."""
        params = {**self.columns.params, name: values}
        return ColumnTable.of(attrs.evolve(self.columns, params=params))

    def take(self, rows: Indices) -> KernelTable:
        """Return some of the rows."""
        return ColumnTable.of(self.columns.take(rows))
