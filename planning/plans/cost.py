"""What a sharding plan costs: shards load ranks, and ranks make the step's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.passes import Placement


@attrs.frozen(kw_only=True)
class Table:
    """An embedding table, as plans and their costs see it.

    Attributes:
        name: What plans call it: its parameter, without `.weight`.
        rows: Its rows.
        dim: Its columns.
        pooling: Rows that a bag sums up, on average.
        element_bytes: Bytes of an element of a row.
        weighted: Whether rows are multiplied by weights that come with the indices.
        popularity: How lookups spread over rows, as `perfc locality` writes it.

    """

    name: str
    rows: int
    dim: int
    pooling: float
    element_bytes: float = 4.0
    weighted: bool = False
    popularity: str = "uniform"

    @property
    def bytes(self) -> float:
        """What its rows take in memory."""
        return self.rows * self.dim * self.element_bytes


@attrs.frozen
class Shard:
    """What one part of a table adds to the rank that holds it.

    Attributes:
        rank: The rank.
        loads: How much of each resource of the cost, in the order of its `resources`.
        memory_bytes: Memory of the device that it takes.
        host_bytes: Memory of the host that it takes.

    """

    rank: int
    loads: tuple[float, ...]
    memory_bytes: float
    host_bytes: float = 0.0


class PlanCost(Protocol):
    """Prices plans: the loads of shards add up on ranks; ranks together make a step.

    Loads are additive, so a search changes two rows of a matrix where it moves a
    table, and prices many plans in one call.
    """

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the columns of loads, with their units: `lookup_s`, `sent_bytes`."""
        ...

    def shards(self, table: Table, placement: Placement) -> Sequence[Shard]:
        """Return the shards that *table* adds to the ranks that hold a part of it."""
        ...

    def step_s(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time of steps in seconds.

        Args:
            loads: Of plans, ranks and resources, float64, shape `(..., ranks,
                resources)`: sums over the shards of each rank.

        Returns:
            Shape `(...)`.

        """
        ...
