"""Decoders in plain PyTorch, with the calls of Hugging Face's GPT-2 and OPT."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from perfc.frontends import WORKLOADS
from perfc.twins.attention import (
    AS_STORED,
    CausalMask,
    Dropout,
    attend,
    join_heads,
    split_heads,
)
from perfc.twins.twin import Made, Twin, Values

_OPT_OFFSET = 2
"""Rows of OPT's position table before the first position."""


@attrs.frozen(kw_only=True)
class Sizes:
    """Sizes of a decoder.

    Attributes:
        layers: Blocks.
        hidden: Elements of a position's vector.
        heads: Heads of attention.
        vocab: Rows of the token table.
        positions: Rows of the position table.
        logits: Whether the vocabulary's logits leave, or the last vectors.
        spelled_out: Whether attention is matmuls and a softmax, not one call.
        dropout: Share of elements that training zeroes.

    """

    layers: int
    hidden: int
    heads: int
    vocab: int
    positions: int
    logits: bool = True
    spelled_out: bool = False
    dropout: float = 0.0


class Conv1d(nn.Module):
    """A linear layer that stores its weight [in, out], as in GPT-2."""

    def __init__(self, size_in: int, size_out: int) -> None:
        """Make weight and bias."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size_in, size_out) * 0.02)
        self.bias = nn.Parameter(torch.zeros(size_out))

    def forward(self, x: Tensor) -> Tensor:
        """Multiply the last axis."""
        rows = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return rows.view(*x.shape[:-1], self.weight.shape[1])


def new_gelu(x: Tensor) -> Tensor:
    """GELU with a tanh, as GPT-2 writes it."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Gpt2Block(nn.Module):
    """Attention and a feed-forward layer, each normalised before."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the layers."""
        super().__init__()
        hidden = sizes.hidden
        self.hidden, self.heads, self.spelled_out = (
            hidden,
            sizes.heads,
            sizes.spelled_out,
        )
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.drop = Dropout(sizes.dropout)
        self.c_attn = Conv1d(hidden, 3 * hidden)
        self.c_proj = Conv1d(hidden, hidden)
        self.c_fc = Conv1d(hidden, 4 * hidden)
        self.c_out = Conv1d(4 * hidden, hidden)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Transform [batch, length, hidden]."""
        pieces = self.c_attn(self.ln_1(x)).split(self.hidden, dim=2)
        q, k, v = (split_heads(piece, self.heads) for piece in pieces)
        y = attend(
            *(q, k, v, mask),
            causal=mask is None,
            spelled_out=self.spelled_out,
            dropout=self.drop.now,
        )
        x = self.drop(self.c_proj(join_heads(y))) + x
        inner = new_gelu(self.c_fc(self.ln_2(x)))
        out: Tensor = x + self.drop(self.c_out(inner))
        return out


class OptLayer(nn.Module):
    """Attention and a feed-forward layer, each normalised before, with ReLU."""

    def __init__(self, sizes: Sizes) -> None:
        """Make the layers."""
        super().__init__()
        hidden = sizes.hidden
        self.heads, self.spelled_out = sizes.heads, sizes.spelled_out
        self.first_norm, self.final_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.drop = Dropout(sizes.dropout)
        self.q_proj, self.k_proj = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.v_proj, self.out_proj = (
            nn.Linear(hidden, hidden),
            nn.Linear(hidden, hidden),
        )
        self.fc1, self.fc2 = (
            nn.Linear(hidden, 4 * hidden),
            nn.Linear(4 * hidden, hidden),
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Transform [batch, length, hidden]."""
        y = self.first_norm(x)
        q, k, v = (
            split_heads(project(y), self.heads)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = attend(
            *(q, k, v, mask),
            causal=mask is None,
            spelled_out=self.spelled_out,
            dropout=self.drop.now,
        )
        x = x + self.drop(self.out_proj(join_heads(y)))
        inner = functional.relu(self.fc1(self.final_norm(x)))
        out: Tensor = x + self.drop(self.fc2(inner))
        return out


class Decoder(nn.Module):
    """Tokens and positions, blocks, and the logits of the vocabulary.

    The logits share the weights of the token embedding.
    """

    def __init__(
        self, sizes: Sizes, block: Callable[[Sizes], nn.Module], offset: int = 0
    ) -> None:
        """Make the layers; positions begin at row *offset* of their table."""
        super().__init__()
        self.logits = sizes.logits
        self.words = nn.Embedding(sizes.vocab, sizes.hidden)
        self.positions = nn.Embedding(sizes.positions + offset, sizes.hidden)
        self.blocks = nn.ModuleList(block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.hidden)
        # OPT drops nothing of its embeddings.
        self.drop = Dropout(0.0 if offset else sizes.dropout)
        places = torch.arange(offset, sizes.positions + offset)[None]
        self.register_buffer("places", places, persistent=False)
        self.mask = CausalMask(sizes.positions) if sizes.spelled_out else None

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits [batch, length, vocab], or vectors [batch, length, hidden]."""
        length = tokens.shape[1]
        x = self.words(tokens) + self.positions(self.get_buffer("places")[:, :length])
        x = self.drop(x)
        mask = None if self.mask is None else self.mask()[..., :length, :length]
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        return functional.linear(x, self.words.weight) if self.logits else x


def _twin(
    name: str, batch: int, block: Callable[[Sizes], nn.Module], offset: int = 0
) -> Twin:
    def make(values: Values, batch: int) -> Made:
        layers, hidden, heads, vocab, seq = (
            int(values[key]) for key in ("layers", "hidden", "heads", "vocab", "seq")
        )
        sizes = Sizes(
            layers=layers,
            hidden=hidden,
            heads=heads,
            vocab=vocab,
            positions=WORKLOADS[name].limits["seq"],
            logits=values["head"] == "lm",
            spelled_out=values["attention"] == "eager",
            dropout=float(values["dropout"]),
        )
        tokens = torch.randint(vocab, (batch, seq))
        return Decoder(sizes, block, offset), (tokens,)

    return Twin(name=name, batch=batch, make=make, fixed=AS_STORED)


gpt2 = _twin("gpt2", 8, Gpt2Block)
gpt2_large = _twin("gpt2-large", 4, Gpt2Block)
gpt3_xl = _twin("gpt3-xl", 2, Gpt2Block)
gpt3_2_7b = _twin("gpt3-2.7b", 1, Gpt2Block)
opt_1_3b = _twin("opt-1.3b", 2, OptLayer, _OPT_OFFSET)

GPT_TWINS = (gpt2, gpt2_large, gpt3_xl, gpt3_2_7b, opt_1_3b)
