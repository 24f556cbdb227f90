"""A Switch Transformer in plain PyTorch, with experts that take all they can."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from perfc.twins.attention import (
    AS_STORED,
    CausalMask,
    attend,
    join_heads,
    split_heads,
)
from perfc.twins.twin import Made, Twin, Values

_EPSILON = 1e-6
_BUCKETS = 32


@attrs.frozen(kw_only=True)
class Sizes:
    """Sizes, as the parameters of the workload."""

    layers: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    experts: int
    capacity: int
    seq: int
    vocab: int


class RootNorm(nn.Module):
    """Divide by the root mean square, as T5 spells it."""

    def __init__(self, hidden: int) -> None:
        """Make the scale."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + _EPSILON))


class Attention(nn.Module):
    """Normalise, attend to oneself or to what is given, and add."""

    def __init__(self, sizes: Sizes) -> None:
        """Make projections without bias."""
        super().__init__()
        width = sizes.heads * sizes.head_dim
        self.heads, self.norm = sizes.heads, RootNorm(sizes.hidden)
        self.q = nn.Linear(sizes.hidden, width, bias=False)
        self.k = nn.Linear(sizes.hidden, width, bias=False)
        self.v = nn.Linear(sizes.hidden, width, bias=False)
        self.o = nn.Linear(width, sizes.hidden, bias=False)

    def forward(self, x: Tensor, bias: Tensor, source: Tensor | None = None) -> Tensor:
        """Attend to *source*, or to x itself."""
        normed = self.norm(x)
        read = normed if source is None else source
        q, k, v = (
            split_heads(project(y), self.heads)
            for project, y in ((self.q, normed), (self.k, read), (self.v, read))
        )
        y = attend(q, k, v, bias, spelled_out=True, scaled=False)
        out: Tensor = x + self.o(join_heads(y))
        return out


class Dense(nn.Module):
    """Widen, cut off below 0, narrow."""

    def __init__(self, sizes: Sizes) -> None:
        """Make both layers."""
        super().__init__()
        self.wi = nn.Linear(sizes.hidden, sizes.ffn, bias=False)
        self.wo = nn.Linear(sizes.ffn, sizes.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform the last axis."""
        out: Tensor = self.wo(functional.relu(self.wi(x)))
        return out


class Experts(nn.Module):
    """Send each token to one expert, and scale by the router's probability."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the router and the experts."""
        super().__init__()
        self.sizes = sizes
        self.classifier = nn.Linear(sizes.hidden, sizes.experts, bias=False)
        self.experts = nn.ModuleList(Dense(sizes) for _ in range(sizes.experts))

    def forward(self, x: Tensor) -> Tensor:
        """Transform [batch, seq, hidden]."""
        mask, probability = self.route(x)
        batch, seq, hidden = x.shape
        tokens = x.reshape(-1, hidden)
        starts = (torch.arange(batch, device=x.device) * seq)[:, None]
        states = tokens
        for number, expert in enumerate(self.experts):
            _, places = mask[:, :, number].topk(self.sizes.capacity, dim=1)
            rows = (places + starts).reshape(-1)
            y = expert(tokens.index_select(0, rows)).to(states.dtype)
            states = torch.index_put(states, (rows,), y)
        return probability * states.view(batch, seq, hidden)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return who takes which token, [batch, seq, experts], and how probably."""
        shares = functional.softmax(self.classifier(x), dim=-1)
        chosen = functional.one_hot(shares.argmax(-1), self.sizes.experts)
        fits = chosen.cumsum(1) <= self.sizes.capacity
        return chosen * fits, shares.max(-1, keepdim=True).values


class FeedForward(nn.Module):
    """Normalise, transform, and add; every second one has experts."""

    def __init__(self, sizes: Sizes, block: int) -> None:
        """Make the norm and the layers of this block."""
        super().__init__()
        self.norm = RootNorm(sizes.hidden)
        self.mlp = Experts(sizes) if block % 2 else Dense(sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Transform [batch, seq, hidden]."""
        out: Tensor = x + self.mlp(self.norm(x))
        return out


class PositionBias(nn.Module):
    """A bias for each head and pair of positions; distances share buckets."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the table, and the bucket of each pair: here, of each distance."""
        super().__init__()
        self.table = nn.Embedding(_BUCKETS, sizes.heads)
        places = torch.arange(sizes.seq)
        buckets = (places[:, None] - places[None]).abs().clamp(max=_BUCKETS - 1)
        self.register_buffer("buckets", buckets, persistent=False)

    def forward(self, mask: Tensor) -> Tensor:
        """Return the bias with the mask, [1 or batch, heads, seq, seq]."""
        bias: Tensor = self.table(self.get_buffer("buckets"))
        return bias.permute(2, 0, 1).unsqueeze(0) + mask


class Encoder(nn.Module):
    """Every token attends to all that are not blocked."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the blocks."""
        super().__init__()
        self.bias, self.norm = PositionBias(sizes), RootNorm(sizes.hidden)
        blocks = range(sizes.layers)
        self.attention = nn.ModuleList(Attention(sizes) for _ in blocks)
        self.feed_forward = nn.ModuleList(FeedForward(sizes, b) for b in blocks)

    def forward(self, x: Tensor, blocked: Tensor) -> Tensor:
        """Encode [batch, seq, hidden]."""
        bias = self.bias(blocked)
        for attention, mlp in zip(self.attention, self.feed_forward, strict=True):
            x = mlp(attention(x, bias))
        out: Tensor = self.norm(x)
        return out


class SwitchDecoder(nn.Module):
    """Every token attends to those before it, then to the encoded ones."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the blocks."""
        super().__init__()
        self.sizes = sizes
        self.bias, self.norm = PositionBias(sizes), RootNorm(sizes.hidden)
        self.later = CausalMask(sizes.seq)
        blocks = range(sizes.layers)
        self.attention = nn.ModuleList(Attention(sizes) for _ in blocks)
        self.cross = nn.ModuleList(Attention(sizes) for _ in blocks)
        self.feed_forward = nn.ModuleList(FeedForward(sizes, b) for b in blocks)

    def forward(self, y: Tensor, encoded: Tensor, blocked: Tensor) -> Tensor:
        """Decode [batch, seq, hidden]."""
        bias = self.bias(self.later())
        shape = (1, self.sizes.heads, self.sizes.seq, self.sizes.seq)
        cross = torch.zeros(shape, dtype=y.dtype, device=y.device) + blocked
        parts = zip(self.attention, self.cross, self.feed_forward, strict=True)
        for attention, source, mlp in parts:
            y = mlp(source(attention(y, bias), cross, encoded))
        out: Tensor = self.norm(y)
        return out


class Switch(nn.Module):
    """Encoder and decoder, and the logits of the vocabulary unless not wanted."""

    def __init__(self, sizes: Sizes, *, logits: bool = True) -> None:
        """Make both, and the table of tokens that they share."""
        super().__init__()
        self.shared = nn.Embedding(sizes.vocab, sizes.hidden)
        self.encoder, self.decoder = Encoder(sizes), SwitchDecoder(sizes)
        self.logits = logits

    def forward(self, sources: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
        """Return logits [batch, seq, vocab]; the mask is 1 for what counts."""
        x = self.shared(sources)
        kept = mask.to(x.dtype).view(mask.shape[0], 1, 1, mask.shape[1])
        blocked = (1.0 - kept) * torch.finfo(x.dtype).min
        y = self.decoder(self.shared(targets), self.encoder(x, blocked), blocked)
        if not self.logits:
            out: Tensor = y
            return out
        return functional.linear(y * y.shape[-1] ** -0.5, self.shared.weight)


def _make(values: Values, batch: int) -> Made:
    names = [field.name for field in attrs.fields(Sizes)]
    given: Mapping[str, int] = {name: int(values[name]) for name in names}
    sizes = Sizes(**given)
    sizes = attrs.evolve(sizes, capacity=min(sizes.capacity, sizes.seq))
    sources, targets = torch.randint(sizes.vocab, (2, batch, sizes.seq))
    mask = torch.ones(batch, sizes.seq, dtype=torch.int64)
    return Switch(sizes, logits=values["head"] == "lm"), (sources, mask, targets)


switch_xl_4 = Twin(name="switch-xl-4", batch=1, make=_make, fixed=AS_STORED)

SWITCH_TWINS = (switch_xl_4,)
