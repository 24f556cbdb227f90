"""Scaled dot-product attention, by the tiles of its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.attention.attention import (
        ATTENTION,
        attention_seconds,
    )
    from perfc.costmodels.attention.efficient import AttentionParameters
    from perfc.costmodels.attention.residual import (
        ATTENTION_RESIDUAL_FILE,
        attention_features,
        attention_sizes,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "attention": ("ATTENTION", "attention_seconds"),
            "efficient": ("AttentionParameters",),
            "residual": (
                "ATTENTION_RESIDUAL_FILE",
                "attention_features",
                "attention_sizes",
            ),
        },
    )

__all__ = [
    "ATTENTION",
    "ATTENTION_RESIDUAL_FILE",
    "AttentionParameters",
    "attention_features",
    "attention_seconds",
    "attention_sizes",
]
