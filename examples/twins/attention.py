"""Attention of several heads, in one call or spelled out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

AS_STORED: Mapping[str, int | str] = {"dtype": "f32"}
"""Weights are made in 32 bits; `--dtype` converts them."""


def attend(  # noqa: PLR0913 - attention has these parts
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    spelled_out: bool = False,
    scaled: bool = True,
    dropout: float = 0.0,
) -> Tensor:
    """Mix *v*, [batch, heads, length, size], by how alike *q* and *k* are.

    Spelled out, a causal mask is a *mask* that is added like any other. Of the
    weights *dropout* is the share that is zeroed.
    """
    if not spelled_out:
        return functional.scaled_dot_product_attention(
            q, k, v, mask, dropout_p=dropout, is_causal=causal
        )
    scores = torch.matmul(q, k.transpose(2, 3))
    if scaled:
        scores = scores * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    weights = functional.softmax(scores, dim=-1)
    return torch.matmul(functional.dropout(weights, dropout) if dropout else weights, v)


class Dropout(nn.Module):
    """Zeroes a share of the elements in training, and is no call without one."""

    def __init__(self, share: float) -> None:
        """Keep the share."""
        super().__init__()
        self.share = share

    @property
    def now(self) -> float:
        """The share that is zeroed in this mode."""
        return self.share if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements."""
        return functional.dropout(x, self.now) if self.now else x


def split_heads(x: Tensor, heads: int) -> Tensor:
    """View [batch, length, width] as [batch, heads, length, size]."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Copy [batch, heads, length, size] to [batch, length, width]."""
    batch, heads, length, size = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * size)


class CausalMask(nn.Module):
    """What is added to the scores of positions that come later."""

    def __init__(self, length: int) -> None:
        """Make the mask, [1, 1, length, length]."""
        super().__init__()
        lowest = torch.full((length, length), torch.finfo(torch.float32).min)
        mask = lowest.triu(1)[None, None]
        self.register_buffer("mask", mask, persistent=False)

    def forward(self) -> Tensor:
        """Return it."""
        return self.get_buffer("mask")
