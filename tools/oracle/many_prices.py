"""What kernels cost at many members: rows, one for each size and target."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import attrs
import numpy as np

from perfc.costmodels import KernelTable, Target, find_cost_models
from perfc.costmodels.kernels import (
    Indices,
    column_table,
    configurations,
    kernels_of,
    token,
)
from perfc.costmodels.pricing import price_table
from perfc.ir import Kernel
from perfc.passes.lowering import ManyKernels, Noted
from perfc.tools.oracle.costs import PricedRows
from perfc.tools.oracle.memory import Memory, RememberedCost

Rows: TypeAlias = int | Indices
"""The row of a kernel, the same for all members, or one a member."""


@attrs.define(eq=False)
class ManyPrices:
    """What kernels cost, each worked out once.

    Attributes:
        targets: The targets.
        which: The target of each member.
        memory: What was worked out before.
        priced: What was priced.

    """

    targets: Sequence[Target]
    which: Indices
    memory: Memory
    priced: PricedRows = attrs.field(factory=PricedRows, init=False)
    _known: dict[Hashable, Rows] = attrs.field(
        factory=dict["Hashable", "Rows"], init=False
    )
    _keys: dict[int, tuple[ManyKernels, Hashable]] = attrs.field(
        factory=dict[int, "tuple[ManyKernels, Hashable]"], init=False
    )
    """Kernels by their identity, which they keep as long as they stand here."""

    def of(self, noted: Noted) -> Rows:
        """Return the rows of a kernel, at the members that it is noted for."""
        key = self._key(noted)
        found = self._known[key]
        if isinstance(found, int) or not isinstance(key, Kernel):
            return found
        return found[self.which[noted[0]]]

    def note(self, all_noted: Iterable[Noted]) -> None:
        """Price kernels, those that are many all in one table a target."""
        columns: dict[Hashable, Noted] = {}
        apart: dict[Hashable, Noted] = {}
        single: dict[Kernel, None] = {}
        for noted in all_noted:
            key = self._key(noted)
            if key in self._known:
                continue
            rows, kernel = noted
            if not isinstance(kernel, Kernel):
                apart[key] = noted
            elif kernel is key:
                single[kernel] = None
            elif kernel.known:
                columns[key] = noted
            else:
                apart[key] = rows, [*kernels_of(kernel, len(rows))]
        self._price_single([*single])
        self._price_apart(apart)
        self._price_columns(columns)

    def _key(self, noted: Noted) -> Hashable:
        rows, kernel = noted
        found = self._keys.get(id(kernel))
        if found is None:
            key: Hashable = id(kernel)
            if isinstance(kernel, Kernel):
                is_many = configurations(kernel) > 1
                key = (rows.tobytes(), token(kernel)) if is_many else kernel
            found = self._keys[id(kernel)] = kernel, key
        return found[1]

    def _price_single(self, kernels: Sequence[Kernel]) -> None:
        """Price kernels that are the same at all members, on each target."""
        if not kernels:
            return
        firsts = np.array([self._remembered(t, kernels) for t in self.targets])
        for number, kernel in enumerate(kernels):
            alone = len(firsts) == 1
            self._known[kernel] = int(firsts[0]) + number if alone else firsts + number

    def _price_apart(self, apart: Mapping[Hashable, Noted]) -> None:
        """Price kernels that are objects, one a member."""
        if not apart:
            return
        sizes = [len(rows) for rows, _ in apart.values()]
        members = np.concatenate([rows for rows, _ in apart.values()])
        each = [
            k for _, kernels in apart.values() for k in cast("list[Kernel]", kernels)
        ]
        found = np.empty(len(each), dtype=np.intp)
        for number, target in enumerate(self.targets):
            own = np.flatnonzero(self.which[members] == number)
            if len(own):
                first = self._remembered(target, [each[at] for at in own.tolist()])
                found[own] = np.arange(first, first + len(own))
        for key, rows in zip(
            apart, np.split(found, np.cumsum(sizes)[:-1]), strict=True
        ):
            self._known[key] = rows

    def _price_columns(self, columns: Mapping[Hashable, Noted]) -> None:
        """Price kernels whose numbers are many."""
        if not columns:
            return
        kernels = [cast("Kernel", kernel) for _, kernel in columns.values()]
        table, places = column_table(
            kernels, [len(rows) for rows, _ in columns.values()]
        )
        member = np.empty(len(table), dtype=np.intp)
        for (rows, _), place in zip(columns.values(), places, strict=True):
            member[place] = rows
        models, _ = find_cost_models()
        found = np.empty(len(table), dtype=np.intp)
        for number, target in enumerate(self.targets):
            own = np.flatnonzero(self.which[member] == number)
            if len(own):
                part = table if len(own) == len(table) else table.take(own)
                first = self.priced.add(part, target, price_table(part, target, models))
                found[own] = np.arange(first, first + len(own))
        for key, place in zip(columns, places, strict=True):
            self._known[key] = found[place]

    def _remembered(self, target: Target, kernels: Sequence[Kernel]) -> int:
        """Price kernels, new ones only; return the row of the first."""
        distinct = [*dict.fromkeys(kernels)]
        models, _ = find_cost_models()
        found = RememberedCost(self.memory).prices(distinct, target, models)
        if len(distinct) < len(kernels):
            number = {kernel: at for at, kernel in enumerate(distinct)}
            found = found.take(np.array([number[kernel] for kernel in kernels]))
        return self.priced.add(KernelTable(kernels), target, found)
