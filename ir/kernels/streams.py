"""Kernels that go over their elements a few times."""

from __future__ import annotations

from perfc.ir.kernels.definition import named
from perfc.ir.kernels.spelling import (
    COLS,
    COUNT,
    FLAG,
    ROWS,
    SHAPES,
    SIZES,
    WORD,
    kernel,
    kind,
    param,
)

_BATCH = param(
    "batch", COUNT, "samples of its tensor", unit="samples", default=0, by="rows"
)
_SOME_ROWS = param("rows", COUNT, "rows that it goes over", unit="rows", default=0)
_SOME_COLS = param("cols", COUNT, "elements of a row", unit="elements", default=0)
_SCATTERED = param(
    "scattered",
    FLAG,
    "whether elements are moved one at a time: tensors lie unlike, or differ in type",
    default=False,
)

KERNELS = named(
    kernel(
        "elementwise",
        "one result for each element",
        kind("the op, as add or gelu"),
        *(ROWS, COLS),
        param(
            "tensor_inputs",
            COUNT,
            "inputs that are as large as the result",
            unit="tensors",
            default=1,
        ),
        param(
            "bytes",
            COUNT,
            "what it moves in all, where inputs and result are not all; 0: they are",
            unit="bytes",
            default=0,
        ),
        *(_SCATTERED, _BATCH),
        by="eager optimizer rows",
    ),
    kernel(
        "softmax",
        "softmax of every row, or its gradient",
        *(ROWS, COLS, kind("backward for the gradient, log for the logarithm")),
        by="eager rows",
    ),
    kernel(
        "layer_norm",
        "normalisation of every row, or its gradient",
        *(ROWS, COLS, kind("rms, weight, or backward for the gradient")),
        by="eager rows",
    ),
    kernel(
        "batch_norm",
        "normalisation of every channel, or its gradient",
        param("rows", COUNT, "elements of a channel", unit="elements"),
        param("cols", COUNT, "channels", unit="channels"),
        kind("training, where statistics are of the batch"),
        _BATCH,
        by="eager rows",
    ),
    kernel(
        "reduction",
        "one result for every row",
        *(ROWS, COLS, kind("the op, as sum or max")),
        param(
            "axis",
            COUNT,
            "0 where elements of a row lie apart; -1 where they lie together",
            default=-1,
        ),
        by="eager optimizer rows",
    ),
    kernel(
        "concat",
        "several tensors into one",
        param("axis", COUNT, "the axis along which they are joined"),
        param("shapes", SHAPES, "shape of each", unit="elements"),
        param(
            *("rows", COUNT, "elements, where scattered"), unit="elements", default=0
        ),
        param(*("cols", COUNT, "1, where scattered"), unit="elements", default=0),
        _SCATTERED,
        by="eager rows",
    ),
    kernel(
        "gather",
        "elements or rows read, or written, at indices",
        kind("the op, as index_select"),
        param("axis", COUNT, "the axis that indices count along", default=0),
        param("shape", SIZES, "shape of what is read", unit="elements", default=()),
        param("indices", SIZES, "shape of the indices", unit="indices", default=()),
        param(
            "row_bytes",
            COUNT,
            "what a row takes that has scales in it; 0: as the result has it",
            unit="bytes",
            default=0,
            by="eager",
        ),
        *(_SOME_ROWS, _SOME_COLS),
        by="eager rows",
    ),
    kernel(
        "transpose",
        "a tensor whose axes change places",
        param("shape", SIZES, "shape of what is read", unit="elements"),
        param("perm", SIZES, "the axis that each of the result's was", unit="axes"),
        by="rows",
    ),
    kernel(
        "quantize",
        "a matrix of 16 bits into one of 8, and the scales that it is divided by",
        *(ROWS, COLS),
        param(
            "scales",
            WORD,
            "what has a scale of its own: rows, or blocks of 128 elements of a row",
            default="rows",
            choices="rows blocks",
        ),
        by="eager",
    ),
    kernel(
        "pool",
        "the largest, or the mean, of every window, or its gradient",
        param("rows", COUNT, "planes", unit="planes"),
        param("cols", COUNT, "elements of a result's plane", unit="elements"),
        param("window", SIZES, "size of the window", unit="pixels", default=()),
        kind("max or avg"),
        by="eager",
    ),
    kernel(
        "triton_poi",
        "generated loop over elements",
        *(ROWS, COLS),
        by="compiled",
    ),
    kernel(
        "triton_per",
        "generated reduction that holds its rows in registers",
        *(ROWS, COLS),
        by="compiled",
    ),
    kernel(
        "triton_red",
        "generated reduction that goes over its rows in blocks",
        *(ROWS, COLS),
        param("passes", COUNT, "how often it goes over them", unit="passes", default=0),
        by="compiled",
    ),
    kernel(
        "foreach",
        "one op on lists of tensors",
        kind("the op, as addcmul"),
        param("tensors", COUNT, "tensors of a list", unit="tensors", default=0),
        param("chunks", COUNT, "chunks that they are cut into", unit="chunks"),
        param("largest_chunk", COUNT, "the largest of those", unit="elements"),
        param("elements", COUNT, "elements of a list", unit="elements"),
        by="optimizer",
    ),
    kernel(
        "optimizer_step",
        "step of an optimizer on lists of tensors",
        param("kind", WORD, "the optimizer, as adamw"),
        param("elements", COUNT, "elements of a list", unit="elements"),
        param("tensors", COUNT, "tensors of a list", unit="tensors", default=0),
        param("chunks", COUNT, "chunks they are cut into", unit="chunks", default=0),
        param(
            *("largest_chunk", COUNT, "the largest of those"),
            unit="elements",
            default=1,
        ),
        param(
            "algorithm",
            WORD,
            "fused, foreach or single, as PyTorch calls its loops",
            default="fused",
            by="rows",
        ),
        by="optimizer rows",
    ),
)
"""Kernels that this module declares, by name."""
