"""What an oracle has worked out, to be found again: targets, prices, networks, names.

Threads share it without a lock: every entry is worked out from its key alone, so that
it does not matter whose is kept. Nothing of it goes to other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import attrs
import numpy as np

from perfc.costmodels import (
    Estimate,
    Provenance,
    Target,
    find_cost_models,
    load_target,
    price,
)
from perfc.costmodels.kernels import CostModel, KernelTable
from perfc.costmodels.pricing import price_table
from perfc.ir import Kernel
from perfc.passes.timing import KernelCost, Network, Timeline

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_MOST = 64
"""Targets, networks and names that are remembered."""

_MOST_TABLES = 8
"""Tables of kernels that are remembered."""

_MOST_KERNELS = 50_000
"""Kernels that are remembered of one target."""

Price = tuple[list[float], str, Provenance]
"""A row of an estimate: its numbers, the model's name, and where they come from."""


@attrs.define(eq=False)
class Memory:
    """What an oracle has worked out.

    Attributes:
        targets: By name and set fields.
        prices: By digest of the target, then by kernel.
        tables: Of kernels that were priced together.
        networks: By the columns of their timeline, which they hold.
        others: Whatever else, by what it was made from.

    """

    targets: dict[tuple[str, tuple[tuple[str, str], ...]], Target] = attrs.field(
        factory=dict["tuple[str, tuple[tuple[str, str], ...]]", Target], init=False
    )
    prices: dict[str, dict[Kernel, Price]] = attrs.field(
        factory=dict[str, "dict[Kernel, Price]"], init=False
    )
    tables: dict[tuple[Kernel, ...], KernelTable] = attrs.field(
        factory=dict["tuple[Kernel, ...]", KernelTable], init=False
    )
    networks: dict[tuple[int, ...], tuple[Timeline, Network]] = attrs.field(
        factory=dict["tuple[int, ...]", "tuple[Timeline, Network]"], init=False
    )

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return type(self), ()

    def target(self, name: str, overrides: Mapping[str, str]) -> Target:
        """Return a target, read once."""
        key = (name, tuple(sorted(overrides.items())))
        return remembered(self.targets, key, lambda: load_target(name, overrides))

    def network(self, timeline: Timeline) -> Network:
        """Return the network of a timeline, made once for its columns."""
        columns = (timeline.previous, timeline.gap_s, timeline.issue, timeline.after)
        key = (*map(id, columns), hash(timeline.latency_s))
        made = remembered(self.networks, key, lambda: (timeline, Network.of(timeline)))
        return made[1]

    def note(self, steps: Iterable[tuple[Target, Sequence[Kernel]]]) -> None:
        """Price the kernels of several steps, those for one target in one table."""
        models, _ = find_cost_models()
        for target, kernels in steps:
            known = self.prices_of(target)
            missing = [k for k in dict.fromkeys(kernels) if k not in known]
            if missing:
                found = self.priced(missing, target, models)
                known.update(zip(missing, price_rows(found), strict=True))

    def priced(
        self, kernels: Sequence[Kernel], target: Target, models: Sequence[CostModel]
    ) -> Estimate:
        """Price kernels, in a table that is kept: it is not read for each target."""
        if len(kernels) == 1:
            return price(kernels, target, models)
        key = tuple(kernels)
        table = remembered(self.tables, key, lambda: KernelTable(kernels), _MOST_TABLES)
        return price_table(table, target, models)

    def prices_of(self, target: Target) -> dict[Kernel, Price]:
        """Return the known prices of the kernels of a target."""
        found = remembered(self.prices, target.spec_sha256, dict[Kernel, Price])
        if len(found) > _MOST_KERNELS:
            found.clear()
        return found


def remembered(
    known: dict[K, T], key: K, make: Callable[[], T], most: int = _MOST
) -> T:
    """Return the entry of a key, made the first time; the oldest are forgotten."""
    found = known.get(key)
    if found is not None:
        return found
    made = make()
    while len(known) >= most:
        known.pop(next(iter(known)), None)
    return known.setdefault(key, made)


@attrs.frozen
class RememberedCost(KernelCost):
    """The pass `kernel-cost`, which asks cost models for new kernels only."""

    memory: Memory = attrs.field(factory=Memory, eq=False)

    def prices(
        self, kernels: Sequence[Kernel], target: Target, models: Sequence[CostModel]
    ) -> Estimate:
        """Return the costs of kernels."""
        known = self.memory.prices_of(target)
        missing = [kernel for kernel in kernels if kernel not in known]
        if missing or not kernels:
            found = self.memory.priced(missing, target, models)
            known.update(zip(missing, price_rows(found), strict=True))
            if len(missing) == len(kernels):
                return found
        return _estimate([known[kernel] for kernel in kernels])


def price_rows(found: Estimate) -> list[Price]:
    """Return the rows of an estimate, to be remembered."""
    numbers = np.vstack(
        (
            found.seconds,
            found.sigma_shared,
            found.sigma_independent,
            found.sigma_target,
        )
    )
    return list(zip(numbers.T.tolist(), found.model, found.provenance, strict=True))


def _estimate(rows: Sequence[Price]) -> Estimate:
    numbers, models, provenances = zip(*rows, strict=True)
    count = len(rows) * len(numbers[0])
    column = np.fromiter(chain.from_iterable(numbers), np.float64, count)
    seconds, shared, own, *of_target = column.reshape(len(rows), -1).T.copy()
    return Estimate(seconds, shared, own, models, provenances, np.stack(of_target))
