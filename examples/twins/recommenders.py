"""Recommendation models beside DLRM: DCNv2, wide-and-deep, DeepFM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfc.twins.dlrm import mlp
from perfc.twins.lookups import ONE_BAG_A_TABLE, Bags, bag_inputs, tables_of
from perfc.twins.twin import Made, Twin, Values

_CRITEO_DENSE = 13
_WIDE_DENSE = 512


class Cross(nn.Module):
    """A cross layer of low rank, as TorchRec spells it."""

    def __init__(self, width: int, rank: int) -> None:
        """Make two matmuls and a bias that is added apart."""
        super().__init__()
        self.down = nn.Parameter(torch.rand(rank, width) / width)
        self.up = nn.Parameter(torch.rand(width, rank) / rank)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        """Return first * (up down x + bias) + x."""
        low = functional.linear(x, self.down)
        return first * (functional.linear(low, self.up) + self.bias) + x


class Dcnv2(nn.Module):
    """DCNv2: pooled and dense vectors, crossed, then an MLP."""

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        layers: int,
        rank: int,
        *,
        sparse: bool = False,
    ) -> None:
        """Make MLPs, tables and cross layers."""
        super().__init__()
        width = dim * (len(rows) + 1)
        self.bottom = mlp((_CRITEO_DENSE, 512, 256, dim), last=nn.ReLU)
        self.bags = Bags(rows, dim, sparse=sparse)
        self.cross = nn.ModuleList(Cross(width, rank) for _ in range(layers))
        self.top = mlp((width, 1024, 1024, 512, 256, 1))

    def forward(self, dense: Tensor, *bags: Tensor) -> Tensor:
        """Return logits [batch, 1]."""
        first = torch.cat([self.bottom(dense), *self.bags(bags)], dim=1)
        x = first
        for layer in self.cross:
            x = layer(first, x)
        logits: Tensor = self.top(x)
        return logits


class LinearModel(nn.Module):
    """A weight for each row of each table, and for each dense feature."""

    def __init__(
        self, rows: Sequence[int], dense: int, *, sparse: bool = False
    ) -> None:
        """Make the weights."""
        super().__init__()
        self.bags = Bags(rows, 1, sparse=sparse)
        self.dense = nn.Linear(dense, 1)

    def forward(self, dense: Tensor, bags: Sequence[Tensor]) -> Tensor:
        """Return one number a sample, [batch, 1]."""
        weights = torch.cat(self.bags(bags), dim=1)
        numeric: Tensor = self.dense(dense)
        return weights.sum(1, keepdim=True) + numeric


class WideAndDeep(nn.Module):
    """A linear model beside an MLP."""

    def __init__(self, rows: Sequence[int], dim: int, *, sparse: bool = False) -> None:
        """Make both."""
        super().__init__()
        self.wide = LinearModel(rows, _WIDE_DENSE, sparse=sparse)
        self.bags = Bags(rows, dim, sparse=sparse)
        self.deep = mlp((_WIDE_DENSE + dim * len(rows), 1024, 512, 256, 1))

    def forward(self, dense: Tensor, *bags: Tensor) -> Tensor:
        """Return probabilities [batch, 1]."""
        deep = self.deep(torch.cat([dense, *self.bags(bags)], dim=1))
        return torch.sigmoid(self.wide(dense, bags) + deep)


class DeepFm(nn.Module):
    """A factorisation machine beside an MLP."""

    def __init__(self, rows: Sequence[int], dim: int, *, sparse: bool = False) -> None:
        """Make the vectors that both share."""
        super().__init__()
        self.linear = LinearModel(rows, _CRITEO_DENSE, sparse=sparse)
        self.bags = Bags(rows, dim, sparse=sparse)
        self.dense = nn.Parameter(torch.rand(_CRITEO_DENSE, dim))
        self.width = dim * (_CRITEO_DENSE + len(rows))
        self.deep = mlp((self.width, 400, 400, 400, 1))

    def forward(self, dense: Tensor, *bags: Tensor) -> Tensor:
        """Return probabilities [batch, 1]."""
        numeric = dense.unsqueeze(2) * self.dense
        pooled = torch.cat(self.bags(bags), dim=1)
        categorical = pooled.view(dense.shape[0], len(self.bags.tables), -1)
        vectors = torch.cat([numeric, categorical], dim=1)
        total = vectors.sum(1)
        twice = total * total - (vectors * vectors).sum(1)
        second = twice.sum(1, keepdim=True) * 0.5
        deep = self.deep(vectors.reshape(-1, self.width))
        return torch.sigmoid(self.linear(dense, bags) + second + deep)


_Net = Callable[[list[int], Values], nn.Module]


def _twin(name: str, dense: int, net: _Net) -> Twin:
    def make(values: Values, batch: int) -> Made:
        tables = tables_of(name, values)
        model = net([table.rows for table in tables], values)
        pairs = zip(*bag_inputs(tables, batch), strict=True)
        bags = [tensor for pair in pairs for tensor in pair]
        return model, (torch.rand(batch, dense), *bags)

    return Twin(name=name, batch=2048, make=make, fixed=ONE_BAG_A_TABLE, sparse=True)


def _dcnv2(rows: list[int], values: Values) -> nn.Module:
    dim, layers, rank = (int(values[key]) for key in ("dim", "layers", "rank"))
    return Dcnv2(rows, dim, layers, rank, sparse=bool(values["sparse"]))


def _wide_and_deep(rows: list[int], values: Values) -> nn.Module:
    return WideAndDeep(rows, int(values["dim"]), sparse=bool(values["sparse"]))


def _deepfm(rows: list[int], values: Values) -> nn.Module:
    return DeepFm(rows, int(values["dim"]), sparse=bool(values["sparse"]))


dcnv2_mlperf = _twin("dcnv2-mlperf", _CRITEO_DENSE, _dcnv2)
wide_and_deep = _twin("wide-and-deep", _WIDE_DENSE, _wide_and_deep)
deepfm = _twin("deepfm", _CRITEO_DENSE, _deepfm)

RECOMMENDER_TWINS = (dcnv2_mlperf, wide_and_deep, deepfm)
