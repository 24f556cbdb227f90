"""What a plan costs by perfc's own model: the critical path of the whole step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels import UVM_CACHING, Target, device_bytes
from perfc.costmodels.kernels import Floats
from perfc.ir.dims import ceil_div
from perfc.passes import HBM, Placement, World, embeddings
from perfc.planning.plans import DEVICE_ONLY, Shard, Table, Tiers, cuts, one_of
from perfc.planning.step.part_prices import Part, PartPrices
from perfc.planning.step.roles import MEASURES, SHARDING_GROUPS
from perfc.planning.step.step_template import Idle, Reference, StepTemplate

_GROUP_OF: Mapping[str, str] = {
    embeddings.TABLE_WISE: "table_wise",
    embeddings.COLUMN_WISE: "table_wise",
    embeddings.ROW_WISE: "row_wise",
    embeddings.TABLE_ROW_WISE: "table_row_wise",
    embeddings.GRID: "table_row_wise",
}


def groups_of(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the sharding groups that tables of some sharding types go to."""
    found = {_GROUP_OF[kind] for kind in kinds if kind in _GROUP_OF}
    return tuple(group for group in SHARDING_GROUPS if group in found)


KINDS = tuple(_GROUP_OF)
"""Sharding types that are priced."""


@attrs.frozen(kw_only=True)
class MemoryNeed:
    """What a part of a table takes of a rank's memory.

    Attributes:
        state_elements: Optimizer states of each element, fp32.
        state_rows: The same of each row.
        batch: Samples of all ranks.
        index_bytes: Of an index.
        row_bytes: Of an element of pooled rows, all copies of it together.

    """

    state_elements: int
    state_rows: int
    batch: int
    index_bytes: int
    row_bytes: float

    def of(self, part: Part, element_bytes: float) -> float:
        """Return bytes: rows, states, indices sorted and not, and pooled rows.

        Of tables in host memory the device has the cache, and the states.
        """
        rows = device_bytes(part.record(), round(part.bytes(element_bytes)))
        per_row = 4.0 * (part.dim * self.state_elements + self.state_rows)
        indices = self.batch * part.pooling * 2 * self.index_bytes
        pooled = self.batch * part.dim * self.row_bytes
        return rows + part.rows * per_row + indices + pooled


@attrs.frozen(eq=False)
class PhysicalCost:
    """Loads of ranks in seconds and bytes; steps by their critical path.

    Lookups and updates add up as `PartPrices` says. Exchanges are priced by their
    size, which is the most that any rank sends or gets. `StepModel` puts them together
    with all that plans leave as it is, as the pipeline has scheduled it once for each
    set of sharding groups.

    Attributes:
        world: The ranks.
        target: The machine.
        prices: Prices of parts.
        memory: What parts take in memory.
        refer: Schedules the step for some sharding groups.
        groups: Sharding groups that loads have columns for.
        together: Tables that the model looks up with others at once.
        known: Parts that are priced already.

    """

    world: World
    target: Target
    prices: PartPrices
    memory: MemoryNeed
    refer: Callable[[PhysicalCost, frozenset[str]], Reference]
    groups: tuple[str, ...] = SHARDING_GROUPS
    together: frozenset[str] = frozenset()
    known: dict[Part, tuple[float, float]] = attrs.field(
        factory=dict[Part, tuple[float, float]]
    )

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the columns of loads: sharding group and measure."""
        return tuple(
            f"{group}.{measure}" for group in self.groups for measure in MEASURES
        )

    @functools.cached_property
    def idle(self) -> Idle:
        """Seconds of lookups and updates of next to nothing."""
        found = self.prices.idle()
        return Idle(found.lookup_s, found.update_s)

    def prepare(
        self,
        tables: Sequence[Table],
        types: Sequence[str],
        tiers: Tiers = DEVICE_ONLY,
    ) -> None:
        """Price the parts of tables, all at once."""
        kernels = [embeddings.KERNELS[tier] for tier in tiers.names]
        parts = [
            self._part(table, Placement(kind, (0,) * parts, kernel, tiers.cache))
            for table in tables
            for kind in types
            if kind in _GROUP_OF
            for parts, _, _ in cuts(kind, table, self.world)
            for kernel in kernels
        ]
        self._price(parts)

    def shards(self, table: Table, placement: Placement) -> Sequence[Shard]:
        """Return the shards that *table* adds to the ranks that hold a part of it."""
        kind = placement.kind
        one_of("sharding type", kind, KINDS)
        kernels = tuple(embeddings.KERNELS.values())
        one_of("compute kernel", placement.compute_kernel or kernels[0], kernels)
        places = placement.places or (0,)
        part = self._part(table, placement)
        if part not in self.known:
            self._price([part])
        lookup_s, update_s = self.known[part]
        loads = np.zeros((len(self.groups), len(MEASURES)))
        span = self.among(_GROUP_OF[kind])
        joined = float(len(places) > 1 or table.name in self.together) / span
        own = (lookup_s, update_s, 1.0, part.pooling, float(part.dim), joined)
        loads[self.groups.index(_GROUP_OF[kind])] = own
        memory = self.memory.of(part, table.element_bytes)
        on_host = 0.0 if part.tier == HBM else part.bytes(table.element_bytes)
        row = tuple(loads.ravel().tolist())
        return [
            Shard(place * span + n, row, memory, on_host)
            for place in places
            for n in range(span)
        ]

    def among(self, group: str) -> int:
        """Return how many ranks share rows."""
        spans = {"row_wise": self.world.ranks, "table_row_wise": self.world.per_node}
        return spans.get(group, 1)

    def step_s(self, loads: Floats) -> Floats:
        """Return the time of steps in seconds; see `PlanCost`."""
        shape = loads.shape[:-2]
        ranks = loads.shape[-2]
        grouped = loads.reshape(-1, ranks, len(self.groups), len(MEASURES))
        used = grouped.max(axis=(1, 3)) > 0
        codes = np.maximum(used @ (1 << np.arange(len(self.groups))), 1)
        found = np.zeros(len(grouped))
        for code in np.unique(codes):
            rows = codes == code
            groups = frozenset(d for n, d in enumerate(self.groups) if code >> n & 1)
            if groups not in self._templates:
                spans = {group: self.among(group) for group in self.groups}
                reference = self.refer(self, groups)
                made = StepTemplate.of(reference, self.idle, spans, self.target)
                self._templates[groups] = made
            found[rows] = self._templates[groups].step_s(grouped[rows])
        return found.reshape(shape)

    def _part(self, table: Table, placement: Placement) -> Part:
        among = self.among(_GROUP_OF[placement.kind])
        tier = placement.tier or HBM
        return Part(
            int(ceil_div(table.rows, among)),
            table.dim // max(1, len(placement.places)),
            table.pooling / among,
            table.popularity,
            tier,
            placement.cache if tier == UVM_CACHING else 0.0,
        )

    def _price(self, parts: Sequence[Part]) -> None:
        new = [part for part in parts if part not in self.known]
        for part, found in self.prices.of(new).items():
            self.known[part] = (found.lookup_s, found.update_s)

    @functools.cached_property
    def _templates(self) -> dict[frozenset[str], StepTemplate]:
        return {}
