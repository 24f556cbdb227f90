"""Kernel signatures as columns: many rows of few ops, none of them an object."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, overload

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import signatures
from perfc.costmodels.kernels.table import KernelTable
from perfc.ir import Kernel, Record, Work

Column = NDArray[Any]
"""Numbers, flags, words, or objects of what is none of these, one a row."""


@attrs.frozen(eq=False, kw_only=True)
class KernelColumns:
    """Signatures that share op, dtype, math mode and the names of their parameters.

    Attributes:
        op: Canonical name.
        dtype: What tensors are stored in.
        math: Math mode.
        params: Parameters by name, shape (rows,) each; int64, float64, bool or str, and
            lists, as of an embedding bag's tables, as objects, None for one without.
        flops: Shape (rows,); so are the others.
        bytes_read: Compulsory.
        bytes_written: Compulsory.

    """

    op: str
    dtype: str
    math: str
    params: Mapping[str, Column]
    flops: signatures.Floats
    bytes_read: signatures.Floats
    bytes_written: signatures.Floats

    def __len__(self) -> int:
        return len(self.flops)

    def take(self, rows: signatures.Indices) -> KernelColumns:
        """Return some of the rows; itself, if they are all of them."""
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return self
        return attrs.evolve(
            self,
            params={name: column[rows] for name, column in self.params.items()},
            flops=self.flops[rows],
            bytes_read=self.bytes_read[rows],
            bytes_written=self.bytes_written[rows],
        )

    def kernel(self, row: int) -> Kernel:
        """Make one of the kernels."""
        values = [column.item(row) for column in self.params.values()]
        work = self.flops[row], self.bytes_read[row], self.bytes_written[row]
        return self._made(values, work)

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
        return list(map(self._made, params, work))

    def _made(self, values: Sequence[Any], work: Sequence[float]) -> Kernel:
        """Return the kernel of a value of each column, and of its work."""
        named = zip(self.params, values, strict=True)
        given = {name: value for name, value in named if value is not None}
        made = Work(*map(int, work))
        return Kernel(self.op, self.dtype, self.math, Record(given), made)


@attrs.frozen(eq=False)
class _Made(Sequence[Kernel]):
    """Kernels that are made when they are asked for: one alone, or else all of them."""

    parts: Sequence[KernelColumns]
    _alone: dict[int, Kernel] = attrs.field(factory=dict[int, Kernel], init=False)

    @functools.cached_property
    def _all(self) -> list[Kernel]:
        made = (part.kernels() for part in self.parts)
        return list(itertools.chain.from_iterable(made))

    @functools.cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._all)

    @overload
    def __getitem__(self, at: int) -> Kernel: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Kernel]: ...

    def __getitem__(self, at: int | slice) -> Kernel | Sequence[Kernel]:
        if isinstance(at, slice):
            return self._all[at]
        row = range(len(self))[at]  # as of a list: from the end, or none
        if row not in self._alone:
            number = bisect.bisect_right(self._ends, row)
            part = self.parts[number]
            self._alone[row] = part.kernel(row - self._ends[number] + len(part))
        return self._alone[row]


@attrs.frozen(eq=False)
class ColumnTable(KernelTable):
    """A table whose rows are columns, in parts; make one with `of`.

    Attributes:
        parts: The rows, those of each part after those of the one before it.

    """

    has_columns_only: ClassVar[bool] = True
    parts: tuple[KernelColumns, ...]

    @classmethod
    def of(cls, first: KernelColumns, *more: KernelColumns) -> ColumnTable:
        """Return the table of the rows of all parts, which are not to be changed."""
        parts = first, *more
        return cls(_Made(parts), parts)

    def _joined(self, of: Callable[[KernelColumns], Column]) -> Column:
        columns = [of(part) for part in self.parts]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    @functools.cached_property
    def flops(self) -> signatures.Floats:
        """Flops of each kernel."""
        return self._joined(lambda part: part.flops)

    @functools.cached_property
    def bytes_read(self) -> signatures.Floats:
        """Bytes each kernel must read."""
        return self._joined(lambda part: part.bytes_read)

    @functools.cached_property
    def bytes_written(self) -> signatures.Floats:
        """Bytes each kernel must write."""
        return self._joined(lambda part: part.bytes_written)

    @functools.cached_property
    def known(self) -> signatures.Flags:
        """Whether each kernel's op has a model: measured rows are of known ops."""
        return np.ones(len(self), dtype=np.bool_)

    @functools.cached_property
    def kinds(self) -> tuple[list[signatures.Kind], signatures.Indices]:
        """The ops, dtypes and math modes that occur, and which each kernel has."""
        numbers: dict[signatures.Kind, int] = {}
        at = [
            numbers.setdefault((part.op, part.dtype, part.math), len(numbers))
            for part in self.parts
        ]
        sizes = [len(part) for part in self.parts]
        return list(numbers), np.repeat(np.array(at, dtype=np.intp), sizes)

    def _param(self, name: str, default: float | None) -> signatures.Floats:
        def of(part: KernelColumns) -> Column:
            column = part.params.get(name)
            if column is not None and column.dtype.kind in "bif":
                return column.astype(np.float64, copy=False)
            other = (
                signatures.number_without(part.op, name) if default is None else default
            )
            if column is not None and column.dtype.kind == "O":
                said = column.tolist()
                numbers = [
                    v if isinstance(v, signatures.NUMBERS) else other for v in said
                ]
                return np.array(numbers, dtype=np.float64)
            return np.full(len(part), float(other))

        return self._joined(of)

    def _text(self, name: str, default: str | None) -> signatures.Texts:
        def of(part: KernelColumns) -> Column:
            column = part.params.get(name)
            if column is not None and column.dtype.kind == "U":
                return column
            other = (
                signatures.text_without(part.op, name) if default is None else default
            )
            if column is not None and column.dtype.kind == "O":
                words = [v if isinstance(v, str) else other for v in column.tolist()]
                return np.array(words, dtype=np.str_)
            return np.full(len(part), other)

        return self._joined(of)

    def _given(self, name: str) -> signatures.Flags:
        def of(part: KernelColumns) -> Column:
            column = part.params.get(name)
            if column is None:
                return np.zeros(len(part), dtype=np.bool_)
            if column.dtype.kind == "U":  # which NumPy 1 reads as numbers
                return np.asarray(column != "", dtype=np.bool_)
            return column.astype(np.bool_)

        return self._joined(of)

    def values(self, name: str) -> list[Any]:
        """Return one parameter of every kernel as it is, None of one without it."""
        columns = ((len(part), part.params.get(name)) for part in self.parts)
        each = ([None] * n if c is None else c.tolist() for n, c in columns)
        return list(itertools.chain.from_iterable(each))

    def with_param(
        self, name: str, values: signatures.Flags | signatures.Floats | signatures.Texts
    ) -> KernelTable:
        """Return the table with one more parameter."""
        cuts = np.cumsum([len(part) for part in self.parts])[:-1]
        pieces = zip(self.parts, np.split(values, cuts), strict=True)
        return ColumnTable.of(
            *(
                attrs.evolve(part, params={**part.params, name: piece})
                for part, piece in pieces
            )
        )

    def _take(self, rows: signatures.Indices) -> KernelTable:
        """Return some of the rows: a part of each part, or of each run of its rows."""
        sizes = np.array([len(part) for part in self.parts])
        starts = np.cumsum(sizes) - sizes
        at = np.searchsorted(np.cumsum(sizes), rows, side="right")
        cuts = np.flatnonzero(np.diff(at)) + 1
        runs = zip(np.split(at, cuts), np.split(rows, cuts), strict=True)
        taken: list[KernelColumns] = []
        for of, run in runs:
            number = int(of[0]) if len(of) else 0  # no row is one of the first part
            taken.append(self.parts[number].take(run - starts[number]))
        return self._part(ColumnTable.of(*taken), rows)
