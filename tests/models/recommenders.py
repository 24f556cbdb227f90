"""Recommendation models in plain PyTorch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence


class DlrmNet(nn.Module):
    """`DLRM_Net` of facebookresearch/dlrm, dot interaction: its forward, written anew.

    One list of indices and one of offsets, a tensor per table, as `lS_i` and `lS_o`.
    """

    def __init__(
        self,
        bottom: Sequence[int],
        rows: Sequence[int],
        top: Sequence[int],
        *,
        sparse: bool = False,
    ) -> None:
        """Make the layers: widths of the MLPs from the first input on."""
        super().__init__()
        dim = bottom[-1]
        self.bot_l = _mlp(bottom, sigmoid=False)
        self.emb_l = nn.ModuleList(
            nn.EmbeddingBag(count, dim, mode="sum", sparse=sparse) for count in rows
        )
        vectors = len(rows) + 1
        width = dim + vectors * (vectors - 1) // 2
        self.top_l = _mlp((width, *top), sigmoid=True)

    def forward(
        self, dense: Tensor, offsets: Sequence[Tensor], indices: Sequence[Tensor]
    ) -> Tensor:
        """Return probabilities [batch, 1]."""
        x = self.bot_l(dense)
        pairs = zip(self.emb_l, indices, offsets, strict=True)
        pooled = [table(index, offset) for table, index, offset in pairs]
        out: Tensor = self.top_l(self.interact(x, pooled))
        return out

    @staticmethod
    def interact(x: Tensor, pooled: Sequence[Tensor]) -> Tensor:
        """Put the products of every pair of vectors behind the dense one."""
        batch, dim = x.shape
        vectors = torch.cat([x, *pooled], dim=1).view((batch, -1, dim))
        products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
        count = len(pooled) + 1
        li = torch.tensor([i for i in range(count) for _ in range(i)])
        lj = torch.tensor([j for i in range(count) for j in range(i)])
        return torch.cat([x, products[:, li, lj]], dim=1)


def _mlp(widths: Sequence[int], *, sigmoid: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise(widths):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    if sigmoid:
        layers[-1] = nn.Sigmoid()
    return nn.Sequential(*layers)


def bags_of(tables: int, batch: int, pooling: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return offsets and indices for so many tables, *pooling* look-ups a bag."""
    offsets = [torch.arange(batch) * pooling for _ in range(tables)]
    indices = [torch.zeros(batch * pooling, dtype=torch.int64) for _ in range(tables)]
    return offsets, indices
