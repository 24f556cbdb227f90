"""What op graphs go through when they are loaded."""

from __future__ import annotations

from perfc.passes import Pass, ShapeInference
from perfc.passes.control_flow import ResolveControlFlow
from perfc.passes.raising import (
    RaiseActivation,
    RaiseAttention,
    RaiseEmbeddingBag,
    RaiseGradient,
    RaiseIndex,
    RaiseLinear,
    RaiseNorm,
    RaiseRotary,
)
from perfc.passes.shapes import FoldShapes

FRONT_PIPELINE: tuple[Pass, ...] = (
    RaiseEmbeddingBag(),
    ResolveControlFlow(),
    ShapeInference(),
    FoldShapes(),
    RaiseGradient(),
    RaiseLinear(),
    RaiseActivation(),
    RaiseNorm(),
    RaiseAttention(),
    RaiseRotary(),
    RaiseIndex(),
)
"""What every op graph goes through before anything is asked of it.

The first needs neither types nor numbers. Where control flow may depend on the
numbers of symbols, these are bound after it, and each binding runs the others.
"""

RECORDED_PIPELINE: tuple[Pass, ...] = (ShapeInference(),)
"""What the op graph of a recording goes through."""
