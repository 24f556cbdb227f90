"""The built-in ops. One module per family; each registers into `BUILTIN_OPS`."""

from __future__ import annotations

from perfc.ir.opdef import OpRegistry
from perfc.ir.ops import (
    activation,
    activation_backward,
    attention,
    bags,
    casting,
    collective,
    constant,
    control,
    convolution,
    ctc,
    distance,
    einsum,
    elementwise,
    embedding,
    embedding_backward,
    indexing,
    indexing_backward,
    layer_backward,
    linalg,
    loss,
    memory,
    movement,
    normalization,
    optimizer,
    pooling,
    quantization,
    rearrangement,
    recurrent,
    recurrent_cell,
    reduction,
    replicated,
    resampling,
    selection,
    sequence,
    spectral,
    testing,
    text,
    wire,
)

BUILTIN_OPS = OpRegistry()
"""Every op of perfc's own vocabulary."""

for _family in (
    *(activation, attention, bags, normalization),
    *(casting, constant, control, convolution, distance, einsum, elementwise),
    *(collective, ctc, embedding),
    *(indexing, linalg, memory, movement, pooling, quantization, rearrangement),
    *(
        recurrent,
        recurrent_cell,
        reduction,
        replicated,
        resampling,
        selection,
        sequence,
        spectral,
    ),
    *(activation_backward, embedding_backward, indexing_backward, layer_backward),
    *(loss, optimizer),
    *(testing, text, wire),
):
    for _op in _family.OPS:
        BUILTIN_OPS.register(_op)
