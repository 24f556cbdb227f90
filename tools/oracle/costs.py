"""What kernels cost at many members, besides the seconds that they take."""

from __future__ import annotations

import bisect
import functools
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import COLLECTIVES, Draws, Estimate, KernelTable, Target, draws_of
from perfc.costmodels.kernels import ColumnTable, Flags, Floats, Indices
from perfc.passes.memory import BLAS
from perfc.tools.oracle.memory import Price, price_rows
from perfc.tools.reports import LIMITS

Array: TypeAlias = NDArray[Any]


@attrs.frozen(eq=False)
class PricedTable:
    """Some kernels on a target, and what they cost.

    Attributes:
        table: The kernels.
        target: The target.
        estimate: What they take.

    """

    table: KernelTable
    target: Target
    estimate: Estimate

    @functools.cached_property
    def draws(self) -> Draws | None:
        """What they draw; None on a target whose watts nobody has measured."""
        power, seconds = self.target.power, self.estimate.seconds
        if power is None or not len(seconds):
            return None
        return draws_of(self.table, seconds, self.target, power)

    @property
    def seconds(self) -> Floats:
        """What they take."""
        return self.estimate.seconds

    @property
    def joules(self) -> Floats:
        """What they draw above an idle board, held down by nothing but its hardware."""
        if self.draws is None:
            return np.zeros(len(self.table))
        at = self.draws.at(self.draws.power.burst_watts)
        joules: Floats = self.seconds * at.watts * at.slowdown
        return joules

    @property
    def known(self) -> Flags:
        """Whether it is known what they draw."""
        if self.draws is None:
            return np.zeros(len(self.table), dtype=np.bool_)
        return self.draws.known

    @property
    def bytes_read(self) -> Floats:
        """What they must read."""
        return self.table.bytes_read

    @property
    def bytes_written(self) -> Floats:
        """What they must write."""
        return self.table.bytes_written

    @property
    def limit(self) -> Indices:
        """Place in `LIMITS` of what limits them, as reports say it."""
        kinds, at = self.table.kinds
        peaks = [self.target.peak(math) if math else np.inf for _, _, math in kinds]
        compute_s = self.table.flops / np.array(peaks)[at]
        memory_s = self.table.bytes / self.target.device.memory.bytes_per_s
        memory, compute, network = map(LIMITS.index, ("memory", "compute", "network"))
        on_network = np.array([not math for _, _, math in kinds])[at]
        found = np.where(compute_s > memory_s, compute, memory)
        return np.where(on_network, network, found)

    @property
    def is_blas(self) -> Flags:
        """Whether they make PyTorch allocate a workspace."""
        kinds, at = self.table.kinds
        return np.array([op == BLAS for op, _, _ in kinds], dtype=np.bool_)[at]


@attrs.define(eq=False)
class PricedRows:
    """Kernels that are priced, one a row.

    Attributes:
        tables: The kernels; rows count on from one table to the next.

    """

    tables: list[PricedTable] = attrs.field(factory=list[PricedTable], init=False)
    _firsts: list[int] = attrs.field(factory=list[int], init=False)
    _count: int = attrs.field(default=0, init=False)
    _columns: dict[tuple[str, int], Array] = attrs.field(
        factory=dict[tuple[str, int], "Array"], init=False
    )

    def add(self, table: KernelTable, target: Target, estimate: Estimate) -> int:
        """Add kernels; return the row of the first."""
        first, self._count = self._count, self._count + len(table)
        self.tables.append(PricedTable(table, target, estimate))
        self._firsts.append(first)
        return first

    def prices(self, rows: Sequence[int]) -> list[Price]:
        """Return the prices of some rows, to be remembered."""
        found: list[Price] = []
        for row in rows:
            number = bisect.bisect_right(self._firsts, row) - 1
            estimate = self.tables[number].estimate
            found += price_rows(estimate.take(np.array([row - self._firsts[number]])))
        return found

    @property
    def seconds(self) -> Floats:
        """What each takes."""
        found: Floats = self.column("seconds", lambda one: one.seconds)
        return found

    @property
    def joules(self) -> Floats:
        """What each draws above an idle board."""
        found: Floats = self.column("joules", lambda one: one.joules)
        return found

    def column(self, name: str, of: Callable[[PricedTable], Any]) -> Any:  # noqa: ANN401 - of numbers, or flags
        """Return a column of every row, along the last axis."""
        key = name, len(self.tables)
        if key not in self._columns:
            columns = [*map(of, self.tables)] or [np.empty(0)]
            self._columns[key] = np.concatenate(columns, axis=-1)
        return self._columns[key]

    def numbered(
        self, name: str, of: Callable[[PricedTable], Sequence[Any]]
    ) -> Indices:
        """Return numbers of words that are said of every row."""
        numbers: dict[Any, int] = {}

        def column(one: PricedTable) -> Indices:
            words = of(one)
            found = [numbers.setdefault(word, len(numbers)) for word in words]
            return np.array(found, dtype=np.intp)

        found: Indices = self.column(name, column)
        return found


@attrs.frozen(eq=False)
class Costs:
    """What the kernels of a launch graph cost at some members.

    Attributes:
        priced: What is priced.
        rows: The row of each kernel, shape (kernels, members).

    """

    priced: PricedRows
    rows: Indices

    def of(self, name: str) -> Any:  # noqa: ANN401 - numbers, or flags
        """Return a property of `PricedTable`, shape (kernels, members)."""
        return self.priced.column(name, lambda one: getattr(one, name))[self.rows]

    @functools.cached_property
    def own(self) -> Floats:
        """Sigma of each kernel's own error."""
        column = self.priced.column("own", lambda one: one.estimate.sigma_independent)
        found: Floats = column[self.rows]
        return found

    @functools.cached_property
    def shared(self) -> tuple[tuple[Indices, Floats], ...]:
        """Factors of the errors that kernels share, and their sigmas, by kind."""
        of_model = self.priced.numbered("model", _models)[self.rows]
        sigma = self.priced.column("sigma", lambda one: one.estimate.sigma_shared)
        found = [(of_model, sigma[self.rows])]
        of_kind = self._kinds
        of_target = self.priced.column(
            "of_target", lambda one: one.estimate.sigma_target
        )
        found += [(of_kind, column[self.rows]) for column in of_target]
        return tuple([(factor, sigma) for factor, sigma in found if sigma.any()])

    @functools.cached_property
    def _kinds(self) -> Indices:
        return self.priced.numbered("kind", _kinds)[self.rows]

    @functools.cached_property
    def first(self) -> Indices:
        """The first kernel that each one is equal to, mostly itself.

        Kernels that differ at some sizes may not at others, where a launch graph that
        is made for those has one of them.
        """
        marks = self.priced.column("mark", _marks)[self.rows]
        found = np.repeat(np.arange(len(marks))[:, None], marks.shape[1], axis=1)
        ordered = np.sort(marks, axis=0)
        for member in np.flatnonzero(
            (ordered[1:] == ordered[:-1]).any(axis=0)
        ).tolist():
            _, first, at = np.unique(
                marks[:, member], return_index=True, return_inverse=True
            )
            found[:, member] = first[at]
        return found

    def take(self, members: Indices) -> Costs:
        """Return those of some members."""
        return Costs(self.priced, self.rows[:, members])


def _models(one: PricedTable) -> Sequence[object]:
    ops = one.table.op.tolist()
    return [
        (op in COLLECTIVES, model)
        for op, model in zip(ops, one.estimate.model, strict=True)
    ]


def _kinds(one: PricedTable) -> Sequence[tuple[str, str]]:
    kinds, at = one.table.kinds
    numbers: list[int] = at.tolist()
    return [(kinds[n][0], kinds[n][2] or kinds[n][1]) for n in numbers]


def _marks(one: PricedTable) -> NDArray[np.complex128]:
    """Return a number of each kernel that no other one has: its work, and the rest."""
    table = one.table
    work = table.flops + math.pi * table.bytes_read + math.e * table.bytes_written
    params = np.array([_mark(*kind) for kind in _kinds(one)])
    if isinstance(table, ColumnTable):
        first = 0
        for part in table.parts:
            for name, column in part.params.items():
                params[first : first + len(part)] += _mark(name) * _amounts(column)
            first += len(part)
        return work + 1j * params
    for row, kernel in enumerate(table.kernels):
        for name, value in kernel.params.items():
            params[row] += _mark(name) * _amount(value)
    return work + 1j * params


def _amounts(column: Array) -> Floats:
    if column.dtype.kind in "bif":
        return column.astype(np.float64)
    return np.array([*map(_amount, column.tolist())])


def _amount(value: object) -> float:
    if isinstance(value, bool | int | float):
        return float(value)
    return 0.0 if value is None else _mark(str(value))


@functools.cache
def _mark(*words: str) -> float:
    """Return a number between 1 and 2 of some words."""
    return 1 + zlib.crc32(" ".join(words).encode()) / 2**32
