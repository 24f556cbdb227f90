"""Raising of what exporters write to ops that say what they mean, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.raising.decompose import (
        drop_elements,
        fold_batches,
        left_whole,
        pair_einsums,
        take_apart,
    )
    from perfc.passes.raising.gradient_matcher import raise_gradients
    from perfc.passes.raising.raise_activation import RaiseActivation
    from perfc.passes.raising.raise_attention import RaiseAttention
    from perfc.passes.raising.raise_embedding_bag import RaiseEmbeddingBag
    from perfc.passes.raising.raise_gradient import RaiseGradient
    from perfc.passes.raising.raise_index import RaiseIndex
    from perfc.passes.raising.raise_linear import RaiseLinear
    from perfc.passes.raising.raise_norm import RaiseNorm
    from perfc.passes.raising.raise_rotary import RaiseRotary
else:
    __getattr__ = door(
        __name__,
        {
            "decompose": (
                "drop_elements",
                "fold_batches",
                "left_whole",
                "pair_einsums",
                "take_apart",
            ),
            "gradient_matcher": ("raise_gradients",),
            "raise_activation": ("RaiseActivation",),
            "raise_attention": ("RaiseAttention",),
            "raise_embedding_bag": ("RaiseEmbeddingBag",),
            "raise_gradient": ("RaiseGradient",),
            "raise_index": ("RaiseIndex",),
            "raise_linear": ("RaiseLinear",),
            "raise_norm": ("RaiseNorm",),
            "raise_rotary": ("RaiseRotary",),
        },
    )

__all__ = [
    "RaiseActivation",
    "RaiseAttention",
    "RaiseEmbeddingBag",
    "RaiseGradient",
    "RaiseIndex",
    "RaiseLinear",
    "RaiseNorm",
    "RaiseRotary",
    "drop_elements",
    "fold_batches",
    "left_whole",
    "pair_einsums",
    "raise_gradients",
    "take_apart",
]
