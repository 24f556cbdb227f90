"""What is measured of each op: shapes, operands, calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.measure.families.attention import Attention
    from perfc.measure.families.conv2d import Conv2d
    from perfc.measure.families.elementwise import Elementwise
    from perfc.measure.families.embedding_bag import (
        EmbeddingBag,
        EmbeddingBagBackward,
        row_indices,
    )
    from perfc.measure.families.gemm import BatchedGemm, Gemm
    from perfc.measure.families.given import (
        Coalesce,
        EmbeddingBackward,
        Foreach,
        Indexed,
        IndexPut,
        NllLoss,
        Pool,
        SparseAdd,
        triangle_side,
    )
    from perfc.measure.families.masked_attention import MaskedAttention
    from perfc.measure.families.movement import Concat, Gather, Memcpy, Transpose
    from perfc.measure.families.optimizer_step import OptimizerStep
    from perfc.measure.families.rows import BatchNorm, LayerNorm, Reduction, Softmax
else:
    __getattr__ = door(
        __name__,
        {
            "attention": ("Attention",),
            "conv2d": ("Conv2d",),
            "elementwise": ("Elementwise",),
            "embedding_bag": ("EmbeddingBag", "EmbeddingBagBackward", "row_indices"),
            "gemm": ("BatchedGemm", "Gemm"),
            "given": (
                "Coalesce",
                "EmbeddingBackward",
                "Foreach",
                "IndexPut",
                "Indexed",
                "NllLoss",
                "Pool",
                "SparseAdd",
                "triangle_side",
            ),
            "masked_attention": ("MaskedAttention",),
            "movement": ("Concat", "Gather", "Memcpy", "Transpose"),
            "optimizer_step": ("OptimizerStep",),
            "rows": ("BatchNorm", "LayerNorm", "Reduction", "Softmax"),
        },
    )

__all__ = [
    "Attention",
    "BatchNorm",
    "BatchedGemm",
    "Coalesce",
    "Concat",
    "Conv2d",
    "Elementwise",
    "EmbeddingBackward",
    "EmbeddingBag",
    "EmbeddingBagBackward",
    "Foreach",
    "Gather",
    "Gemm",
    "IndexPut",
    "Indexed",
    "LayerNorm",
    "MaskedAttention",
    "Memcpy",
    "NllLoss",
    "OptimizerStep",
    "Pool",
    "Reduction",
    "Softmax",
    "SparseAdd",
    "Transpose",
    "row_indices",
    "triangle_side",
]
