"""The built-in ops. One module per family; each registers into `BUILTIN_OPS`."""

from __future__ import annotations

from perfc.ir.opdef import OpRegistry
from perfc.ir.ops import (
    constant,
    control,
    convolution,
    elementwise,
    embedding,
    indexing,
    linalg,
    movement,
    reduction,
    sequence,
    testing,
)

BUILTIN_OPS = OpRegistry()
"""Every op of perfc's own vocabulary."""

for _family in (
    *(constant, control, convolution, elementwise, embedding),
    *(indexing, linalg, movement, reduction, sequence, testing),
):
    for _op in _family.OPS:
        BUILTIN_OPS.register(_op)
