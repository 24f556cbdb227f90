"""Models of `dlrm` with their arguments in another order, and a lone embedding bag."""

from __future__ import annotations

from collections.abc import Sequence

from dlrm import Dlrm
from torch import Tensor, nn


class DlrmOffsetsFirst(Dlrm):
    """A DLRM with the arguments in the order of `dlrm_s_pytorch.py`."""

    def forward(  # type: ignore[override]  # another order is the point
        self, dense: Tensor, offsets: Sequence[Tensor], indices: Sequence[Tensor]
    ) -> Tensor:
        """Run the model."""
        return super().forward(dense, indices, offsets)


class DlrmInterleaved(Dlrm):
    """A DLRM with the two inputs of every bag next to each other."""

    def forward(  # type: ignore[override]  # another order is the point
        self, dense: Tensor, *bags: Tensor
    ) -> Tensor:
        """Run the model on offsets and indices of table 0, table 1, ..."""
        return super().forward(dense, bags[1::2], bags[0::2])


class Bag(nn.Module):
    """One embedding bag and nothing else."""

    def __init__(self, table: nn.EmbeddingBag) -> None:
        """Take the table."""
        super().__init__()
        self.table = table

    def forward(
        self,
        indices: Tensor,
        offsets: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Pool the rows of every bag."""
        out: Tensor = self.table(indices, offsets, weights)
        return out


class BagReversed(Bag):
    """A `Bag` that takes its arguments in reverse order."""

    def forward(  # type: ignore[override]  # another order is the point
        self, weights: Tensor, offsets: Tensor, indices: Tensor
    ) -> Tensor:
        """Pool the rows of every bag."""
        return super().forward(indices, offsets, weights)
