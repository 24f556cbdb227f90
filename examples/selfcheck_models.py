"""Three small models for `make selfcheck`: a DLRM, an MLP and a CNN.

    perfc analyze examples/selfcheck_models.py:mlp --target cpu

Each factory returns a module and arguments for a batch.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

_TABLES, _ROWS, _DIM, _POOLING, _DENSE = 8, 20_000, 32, 4, 13


class SmallDlrm(nn.Module):
    """Embedding bags, products of all pairs of features, two stacks of layers."""

    def __init__(self) -> None:
        """Make tables and layers."""
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(_ROWS, _DIM, mode="sum", sparse=True)
            for _ in range(_TABLES)
        )
        self.bottom = _stack(_DENSE, 128, 64, _DIM)
        pairs = (_TABLES + 1) * _TABLES // 2
        self.top = _stack(_DIM + pairs, 256, 128, 1)
        self.pairs = torch.tril_indices(_TABLES + 1, _TABLES + 1, offset=-1)

    def forward(self, dense: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
        """Return the probability of a click, shape [batch, 1]."""
        below = self.bottom(dense)
        bags = [
            table(i, offsets) for table, i in zip(self.tables, indices, strict=True)
        ]
        features = torch.stack([below, *bags], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        flat = products[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([below, flat], dim=1)))


def _stack(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def dlrm(batch: int = 256) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a DLRM of eight tables, and a batch of clicks."""
    indices = torch.randint(_ROWS, (_TABLES, batch * _POOLING))
    offsets = torch.arange(0, batch * _POOLING, _POOLING)
    return SmallDlrm(), (torch.randn(batch, _DENSE), indices, offsets)


def mlp(batch: int = 256) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return four layers, and a batch of vectors."""
    return _stack(256, 512, 512, 256, 10), (torch.randn(batch, 256),)


def cnn(batch: int = 32) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return three convolutions with batch norms, and a batch of small images."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(*layers), (torch.randn(batch, 3, 32, 32),)
