"""Types and sizes of all values: inferred, and computed where shapes are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.shapes.fold_shapes import FoldShapes
    from perfc.passes.shapes.inference import Inference
    from perfc.passes.shapes.inference_remarks import remark_misfits
    from perfc.passes.shapes.shape_inference import ShapeInference
else:
    __getattr__ = door(
        __name__,
        {
            "fold_shapes": ("FoldShapes",),
            "inference": ("Inference",),
            "inference_remarks": ("remark_misfits",),
            "shape_inference": ("ShapeInference",),
        },
    )

__all__ = [
    "FoldShapes",
    "Inference",
    "ShapeInference",
    "remark_misfits",
]
