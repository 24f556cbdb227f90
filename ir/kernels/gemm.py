"""Kernels that multiply matrices, or do what comes down to it."""

from __future__ import annotations

from perfc.ir.kernels.definition import KernelParam, named
from perfc.ir.kernels.spelling import (
    COLS,
    COUNT,
    FLAG,
    PER_AXIS,
    ROWS,
    WORD,
    kernel,
    kind,
    param,
)

_COMPANIONS = (
    param(
        "beside",
        COUNT,
        "kernels that its call launches besides, which measured rows of it hold",
        unit="kernels",
        default=0,
        by="eager",
    ),
    param(
        "beside_bytes", COUNT, "what those move", unit="bytes", default=0, by="eager"
    ),
)

GEMM = kernel(
    "gemm",
    "matrix products C[b, m, n] = A[b, m, k] B[b, k, n]",
    param("b", COUNT, "GEMMs of the batch", unit="GEMMs", default=1),
    param("m", COUNT, "rows of A and C", unit="rows"),
    param("n", COUNT, "columns of B and C", unit="columns"),
    param("k", COUNT, "columns of A, rows of B", unit="columns"),
    param(
        "layout",
        WORD,
        "how A and B are stored: row by row (n), or transposed (t)",
        default="",
        choices="nn nt tn tt",
    ),
    param("bias", FLAG, "whether a row is added to every row of C", default=False),
    param(
        "quantized",
        FLAG,
        "whether a kernel of its own quantises A, which measured rows of its call hold",
        default=False,
        by="eager",
    ),
    param(
        "sum_bits",
        COUNT,
        "width of the integers that products of 8-bit ones are added up in, on a CPU",
        unit="bits",
        default=32,
        by="eager",
    ),
    *_COMPANIONS,
    by="eager rows",
)

_CONVOLUTION: tuple[KernelParam, ...] = (
    param("n", COUNT, "images", unit="images"),
    param("c_in", COUNT, "channels of an image", unit="channels"),
    param("c_out", COUNT, "channels of a map", unit="channels"),
    param("kernel", PER_AXIS, "size of the window", unit="pixels"),
    param(
        *("size", PER_AXIS, "size of an image; 0: as its work has it"),
        unit="pixels",
        default=0,
    ),
    param("stride", PER_AXIS, "step of the window", unit="pixels", default=1),
    param("padding", PER_AXIS, "border around an image", unit="pixels", default=0),
    param(
        *("dilation", PER_AXIS, "step within the window"),
        unit="pixels",
        default=1,
        by="eager",
    ),
    param("groups", COUNT, "groups that share the channels", unit="groups", default=1),
    param("algorithm", WORD, "the library's algorithm", default="", by="eager"),
    param(
        "deterministic",
        FLAG,
        "whether an algorithm was taken for summing up a gradient in one order",
        default=False,
        by="eager",
    ),
    *_COMPANIONS,
)

_ATTENTION = kernel(
    "attention",
    "scaled dot-product attention in one kernel",
    param("batch", COUNT, "samples", unit="samples"),
    param("heads", COUNT, "heads of queries", unit="heads"),
    param("q_len", COUNT, "queries of a head", unit="queries"),
    param("kv_len", COUNT, "keys of a head", unit="keys"),
    param("head_dim", COUNT, "elements of a query", unit="elements"),
    param("kv_heads", COUNT, "heads of keys; 0: one a head", unit="heads", default=0),
    param("causal", FLAG, "whether a query sees no later key", default=False),
    param("masked", FLAG, "whether a mask is read and added", default=False, by="rows"),
    param("algorithm", WORD, "flash, efficient, cudnn or math", default=""),
    by="eager rows",
)

KERNELS = named(
    GEMM,
    kernel(
        "conv2d",
        "convolution over two axes, or one of its gradients",
        *_CONVOLUTION,
        by="eager rows",
    ),
    kernel(
        "conv3d",
        "convolution over three axes, or one of its gradients",
        *_CONVOLUTION,
        by="eager",
    ),
    _ATTENTION,
    kernel(
        "linear_attention",
        "attention whose state has a fixed size",
        *(ROWS, COLS),
        by="eager",
    ),
    kernel("causal_conv", "short convolution along a sequence", ROWS, COLS, by="eager"),
    kernel("fft", "Fourier transform", ROWS, COLS, by="eager"),
    kernel(
        "lu",
        "LU factorisation, or a solve by its factors",
        *(ROWS, COLS, kind("solve, or the factorisation")),
        by="eager",
    ),
    kernel(
        "distances",
        "distances between all pairs of rows",
        *(ROWS, COLS, kind("backward, for the gradient")),
        by="eager",
    ),
)
"""Kernels that this module declares, by name."""
