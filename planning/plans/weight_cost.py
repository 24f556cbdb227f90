"""Costs that know one number of a table: what greedy sharders balance."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir import PerfcError
from perfc.passes import Placement, World
from perfc.passes.embeddings import TABLE_WISE
from perfc.planning.plans.checks import check_placement, check_table, one_of
from perfc.planning.plans.cost import Shard, Table
from perfc.planning.plans.sharders import WEIGHTS


@attrs.frozen(kw_only=True)
class WeightCost:
    """A plan costs what the heaviest rank weighs.

    It orders plans, and knows no seconds: `step_s` is a weight.

    Attributes:
        sharder: Whose weight it is, `lookup_greedy` say: one of `WEIGHTS`.
        world: The ranks.

    """

    sharder: str
    world: World

    def __attrs_post_init__(self) -> None:
        """Refuse sharders that weigh nothing."""
        one_of("sharder", self.sharder, WEIGHTS)

    @property
    def resources(self) -> tuple[str, ...]:
        """The weight alone."""
        return ("weight",)

    def shards(self, table: Table, placement: Placement) -> Sequence[Shard]:
        """Return the weight of a whole table."""
        check_table(table)
        check_placement(table, placement, self.world)
        if placement.kind != TABLE_WISE:
            msg = f"table {table.name!r}: {self.sharder} weighs whole tables, "
            raise PerfcError(msg + f"not {placement.kind}")
        weight = WEIGHTS[self.sharder](table)
        return [Shard(placement.places[0], (weight,), table.bytes)]

    def step_s(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest weight of a rank.

        Args:
            loads: Of plans and ranks, float64, shape `(..., ranks, 1)`.

        Returns:
            Shape `(...)`.

        """
        return np.asarray(loads.sum(axis=-1).max(axis=-1), dtype=np.float64)
