"""Measured collectives, as a profile and the fitted file hold them: plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

RING, EXCHANGE = "ring", "exchange"

COLLECTIVES: Mapping[str, str] = {
    "all_reduce": RING,
    "all_gather": RING,
    "reduce_scatter": RING,
    "broadcast": RING,
    "all_to_all": EXCHANGE,
    "send_recv": EXCHANGE,
}
"""Ops that all members of a communicator run, and how their bytes go."""

_FIELDS = 7


@attrs.frozen
class MeasuredCollective:
    """One row: a collective, and what it weighs in what is said of others.

    Attributes:
        op: One of `COLLECTIVES`.
        dtype: Of what is sent.
        bytes: Total, as nccl-tests count it.
        ranks: Members.
        nodes: Nodes that they are on.
        per_node: Members on a node.
        weight: In a covariance: see `collective_rows`.

    """

    op: str
    dtype: str
    bytes: float
    ranks: float
    nodes: float
    per_node: float
    weight: float

    @classmethod
    def parse(cls, text: str) -> MeasuredCollective:
        """Return a row written as `op dtype bytes ranks nodes per_node weight`.

        Raises:
            ValueError: it is not of this form.

        """
        cells = text.split()
        if len(cells) != _FIELDS or cells[0] not in COLLECTIVES:
            raise ValueError(" ".join(cells))
        op, dtype, *sizes = cells
        numbers = [*map(float, sizes)]
        if not all(map(math.isfinite, numbers)) or min(numbers[:-1]) <= 0:
            raise ValueError("a size that cannot be")  # noqa: EM101, TRY003 - the caller says where
        return cls(op, dtype, *numbers)

    def __str__(self) -> str:
        sizes = f"{self.bytes:.0f} {self.ranks:.0f} {self.nodes:.0f} {self.per_node:g}"
        return f"{self.op} {self.dtype} {sizes} {self.weight:.5g}"
