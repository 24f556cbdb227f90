"""Small modules that spell transformers out in the ways people write them."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 32
HEADS = 4
LENGTH = 5

Mask = Literal["none", "boolean", "added", "causal"]


def split_heads(x: Tensor, heads: int = HEADS) -> Tensor:
    """[batch, length, heads * width] to [batch, heads, length, width]."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[batch, heads, length, width] to [batch, length, heads * width]."""
    return x.transpose(1, 2).flatten(2)


class EncoderBlock(nn.Module):
    """Attention by hand, layer norm and exact GELU, as in BERT."""

    def __init__(self) -> None:
        """Make the projections."""
        super().__init__()
        self.query, self.key, self.value, self.output = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Run; the mask is 1 for what counts."""
        q, k, v = (split_heads(f(x)) for f in (self.query, self.key, self.value))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        scores = scores + (1.0 - mask[:, None, None, :]) * -10000.0
        mixed = join_heads(torch.matmul(scores.softmax(-1), v))
        x = self.norm(self.output(mixed) + x)
        return x + self.narrow(functional.gelu(self.wide(x)))


class FusedBlock(nn.Module):
    """`scaled_dot_product_attention`, with each kind of mask."""

    def __init__(self, mask: Mask = "none", kv_heads: int = HEADS) -> None:
        """Make the projection."""
        super().__init__()
        self.joined = nn.Linear(WIDTH, 3 * WIDTH)
        self.mask = mask
        self.kv_heads = kv_heads

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Run; the mask is 1 for what counts."""
        q, k, v = (split_heads(part) for part in self.joined(x).chunk(3, -1))
        shown = mask[:, None, None, :]
        masks = {"boolean": shown > 0.5, "added": (1.0 - shown) * -10000.0}  # noqa: PLR2004
        mixed = functional.scaled_dot_product_attention(
            q,
            k[:, : self.kv_heads],
            v[:, : self.kv_heads],
            attn_mask=masks.get(self.mask),
            is_causal=self.mask == "causal",
            enable_gqa=self.kv_heads != HEADS,
        )
        return join_heads(mixed) * mask[..., None]


class DecoderBlock(nn.Module):
    """One matmul for all projections, a causal `where`, GELU by hand: GPT-2."""

    def __init__(self) -> None:
        """Make weights as GPT-2 stores them, [in, out]."""
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.weight = nn.Parameter(torch.randn(WIDTH, 3 * WIDTH))
        self.bias = nn.Parameter(torch.randn(3 * WIDTH))
        shown = torch.ones(8, 8, dtype=torch.bool).tril().view(1, 1, 8, 8)
        self.register_buffer("shown", shown)

    def forward(self, x: Tensor) -> Tensor:
        """Run."""
        rows = self.norm(x).view(-1, WIDTH)
        joined = torch.addmm(self.bias, rows, self.weight)
        parts = joined.view(*x.shape[:-1], 3 * WIDTH).split(WIDTH, 2)
        q, k, v = (split_heads(part) for part in parts)
        scores = torch.matmul(q, k.transpose(-1, -2)) / v.size(-1) ** 0.5
        shown = self.get_buffer("shown")[:, :, : q.shape[2], : k.shape[2]]
        lowest = torch.full([], torch.finfo(scores.dtype).min)
        scores = torch.where(shown, scores, lowest)
        return gelu_by_hand(join_heads(torch.matmul(scores.softmax(-1), v)))


def gelu_by_hand(x: Tensor) -> Tensor:
    """GELU with a tanh, as GPT-2 writes it."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class RootNorm(nn.Module):
    """RMS norm by hand, as in Llama."""

    def __init__(self) -> None:
        """Make the scale."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH) + torch.rand(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Run."""
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


class RotaryBlock(nn.Module):
    """RMS norm, rotary positions, shared heads and SiLU by hand: Llama."""

    def __init__(self, kv_heads: int = 2) -> None:
        """Make the projections."""
        super().__init__()
        self.kv_heads = kv_heads
        self.norm = RootNorm()
        head = WIDTH // HEADS
        narrow = kv_heads * head
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, narrow, bias=False) for _ in "kv")
        self.gate = nn.Linear(WIDTH, 64, bias=False)
        self.register_buffer("rate", 10000.0 ** (-torch.arange(0, head, 2) / head))

    def forward(self, x: Tensor) -> Tensor:
        """Run."""
        angles = torch.arange(x.shape[1])[:, None] * self.get_buffer("rate")[None]
        angles = torch.cat((angles, angles), -1)[None, None]
        cos, sin = angles.cos(), angles.sin()
        y = self.norm(x)
        q = split_heads(self.query(y))
        k, v = (split_heads(f(y), self.kv_heads) for f in (self.key, self.value))
        q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        k, v = (repeated(t, HEADS // self.kv_heads) for t in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
        hidden = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1)
        weights = (scores + hidden).softmax(-1)
        return functional.silu(self.gate(join_heads(torch.matmul(weights, v))))


def rotated(x: Tensor) -> Tensor:
    """The halves of the last axis change places, the upper one negated."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def repeated(x: Tensor, times: int) -> Tensor:
    """Every head so many times."""
    batch, heads, length, width = x.shape
    wide = x[:, :, None].expand(batch, heads, times, length, width)
    return wide.reshape(batch, heads * times, length, width)


class ImageNorms(nn.Module):
    """Group and instance norms, with scale and bias and without."""

    def __init__(self) -> None:
        """Make the norms."""
        super().__init__()
        self.groups = nn.GroupNorm(2, 8)
        self.channels = nn.InstanceNorm2d(8, affine=True)
        self.plain = nn.InstanceNorm2d(8)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, 0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        """Run."""
        return self.plain(self.channels(self.groups(x)))


class Activations(nn.Module):
    """Each activation on a slice of its own: by PyTorch's name, then by hand."""

    def forward(self, x: Tensor) -> Tensor:
        """Run."""
        a, b, c, d, e, f, g, h, i = x.unbind(1)
        return torch.stack(
            (
                functional.gelu(a),
                functional.gelu(b, approximate="tanh"),
                functional.silu(c),
                functional.hardswish(d),
                gelu_by_hand(e),
                f * 0.5 * (1.0 + torch.erf(f / math.sqrt(2.0))),
                g * torch.sigmoid(g),
                h * torch.sigmoid(1.702 * h),
                i * functional.relu6(i + 3) / 6,
            ),
            1,
        )
