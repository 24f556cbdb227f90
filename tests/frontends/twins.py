"""The built-in workloads once more, in plain PyTorch: what they are held against."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from collections.abc import Sequence

torch.manual_seed(0)


def counted_flops(model: nn.Module, *inputs: Tensor) -> int:
    """Return what PyTorch counts for one forward pass, on the meta device."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*inputs)
    return int(counter.get_total_flops())


def parameter_count(model: nn.Module) -> int:
    """Return the number of parameters, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


class Attention(nn.Module):
    """Attention of several heads over one sequence."""

    def __init__(self, hidden: int, heads: int, *, causal: bool) -> None:
        """Make the four projections."""
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the positions of [batch, seq, hidden]."""
        batch, seq, hidden = x.shape
        q, k, v = (
            project(x).view(batch, seq, self.heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mixed: Tensor = self.out(y.transpose(1, 2).reshape(batch, seq, hidden))
        return mixed


class Block(nn.Module):
    """Attention and a feed-forward layer, normalised before or after."""

    def __init__(self, hidden: int, heads: int, *, causal: bool) -> None:
        """A causal block normalises before each part, the other one after it."""
        super().__init__()
        self.first = causal
        self.attention = Attention(hidden, heads, causal=causal)
        self.norm_1 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)
        self.norm_2 = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Transform [batch, seq, hidden]."""
        if self.first:
            x = x + self.attention(self.norm_1(x))
            y: Tensor = self.down(functional.gelu(self.up(self.norm_2(x))))
            return x + y
        x = self.norm_1(x + self.attention(x))
        z: Tensor = self.norm_2(x + self.down(functional.gelu(self.up(x))))
        return z


class Bert(nn.Module):
    """BERT with the logits of the vocabulary."""

    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        """Make embeddings, blocks and the head."""
        super().__init__()
        self.words = nn.Embedding(30522, hidden)
        self.positions = nn.Embedding(512, hidden)
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)
        blocks = [Block(hidden, heads, causal=False) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.transform = nn.Linear(hidden, hidden)
        self.transform_norm = nn.LayerNorm(hidden)
        self.bias = nn.Parameter(torch.zeros(30522))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        kinds = torch.zeros_like(tokens)
        x = self.words(tokens) + self.positions(places) + self.segments(kinds)
        x = self.blocks(self.norm(x))
        x = self.transform_norm(functional.gelu(self.transform(x)))
        return functional.linear(x, self.words.weight, self.bias)


class Gpt2(nn.Module):
    """GPT-2 with the logits of the vocabulary."""

    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        """Make embeddings, blocks and the last norm."""
        super().__init__()
        self.words = nn.Embedding(50257, hidden)
        self.positions = nn.Embedding(1024, hidden)
        blocks = [Block(hidden, heads, causal=True) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.words(tokens) + self.positions(places))
        return functional.linear(self.norm(x), self.words.weight)


def perceptrons(widths: Sequence[int], *, last: bool) -> nn.Sequential:
    """Stack linear layers with relu behind each; behind the last one if *last*."""
    layers: list[nn.Module] = []
    for size_in, size_out in pairwise(widths):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    return nn.Sequential(*(layers if last else layers[:-1]))


class Bags(nn.Module):
    """One embedding bag per table."""

    def __init__(self, rows: Sequence[int], dim: int) -> None:
        """Make the tables."""
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(count, dim, mode="sum") for count in rows
        )

    def forward(self, bags: Sequence[Tensor]) -> list[Tensor]:
        """Look up; *bags* are indices and offsets in turn."""
        pairs = zip(bags[::2], bags[1::2], strict=True)
        return [table(*pair) for table, pair in zip(self.tables, pairs, strict=True)]


class Cross(nn.Module):
    """A cross layer of low rank, as TorchRec spells it."""

    def __init__(self, width: int, rank: int) -> None:
        """Make two products and a bias that is added apart."""
        super().__init__()
        self.down = nn.Parameter(torch.rand(rank, width))
        self.up = nn.Parameter(torch.rand(width, rank))
        self.bias = nn.Parameter(torch.rand(width))

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        """Return first * (up down x + bias) + x."""
        low = functional.linear(x, self.down)
        return first * (functional.linear(low, self.up) + self.bias) + x


class Dcnv2(nn.Module):
    """DCNv2: pooled and dense vectors, crossed, then an MLP."""

    def __init__(self, rows: Sequence[int], dim: int, layers: int, rank: int) -> None:
        """Make MLPs, tables and cross layers."""
        super().__init__()
        width = dim * (len(rows) + 1)
        self.bottom = perceptrons((13, 512, 256, dim), last=True)
        self.bags = Bags(rows, dim)
        self.cross = nn.ModuleList(Cross(width, rank) for _ in range(layers))
        self.top = perceptrons((width, 1024, 1024, 512, 256, 1), last=False)

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

    def __init__(self, rows: Sequence[int], dense: int) -> None:
        """Make the weights."""
        super().__init__()
        self.bags = Bags(rows, 1)
        self.dense = nn.Linear(dense, 1)

    def forward(self, dense: Tensor, bags: Sequence[Tensor]) -> Tensor:
        """Return one number a sample, [batch, 1]."""
        weights = torch.cat(self.bags(bags), dim=1)
        numeric: Tensor = self.dense(dense)
        return weights.sum(1, keepdim=True) + numeric


class WideAndDeep(nn.Module):
    """A linear model beside an MLP."""

    def __init__(self, rows: Sequence[int], dim: int) -> None:
        """Make both."""
        super().__init__()
        self.wide = LinearModel(rows, 512)
        self.bags = Bags(rows, dim)
        widths = (512 + dim * len(rows), 1024, 512, 256, 1)
        self.deep = perceptrons(widths, last=False)

    def forward(self, dense: Tensor, *bags: Tensor) -> Tensor:
        """Return probabilities [batch, 1]."""
        deep = self.deep(torch.cat([dense, *self.bags(bags)], dim=1))
        return torch.sigmoid(self.wide(dense, bags) + deep)


class DeepFm(nn.Module):
    """A factorisation machine beside an MLP."""

    def __init__(self, rows: Sequence[int], dim: int) -> None:
        """Make the vectors that both share."""
        super().__init__()
        self.linear = LinearModel(rows, 13)
        self.bags = Bags(rows, dim)
        self.dense = nn.Parameter(torch.rand(13, dim))
        self.width = dim * (13 + len(rows))
        self.deep = perceptrons((self.width, 400, 400, 400, 1), last=False)

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
