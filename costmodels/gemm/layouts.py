"""How the matrices of a GEMM lie in memory, and which kernels that leaves.

Of a GEMM with a vector, sums along the matrix's lines are one kernel, which reads
it once. Sums across them are of parts, one for each group of blocks that reads some of
the lines, and a second kernel adds the parts up (`gemvNSP` and a reduction in traces of
DLRM on a V100, owensgroup/ml_perf_model, BSD-3: the gradient of the weights of a layer
of one output). A row with a bias is a linear layer, whose `tn` is a word of cuBLAS for
`nt`.
"""

from __future__ import annotations

from perfc.costmodels.gemm import parameters
from perfc.costmodels.kernels import (
    FLOATS,
    Flags,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Signatures,
    one_of,
)
from perfc.costmodels.machine import Target
from perfc.ir import Kernel

TRANSPOSED = ("nt", "tn")
"""Layouts of a linear layer: `nt` as C = A B in rows, and `tn` in cuBLAS's columns."""

_LINE_BYTES, _LEAST_BYTES = 16, 4
"""What asynchronous copies to shared memory move at a time, at most and at least."""

_ANY_STEP = 16
"""Elements of any type that are no less than what is copied at a time."""

_OFTEN_ODD = ("fp16", "bf16")
"""Types that have `UNALIGNED` kernels where no rows say which have."""


def across(kernels: KernelTable) -> Flags:
    """Whether each GEMM sums a matrix across its lines, times a vector."""
    words = kernels.text("layout")
    left, right = (words == "tn") | (words == "tt"), (words == "tn") | (words == "nn")
    summed = left & (kernels.param("n") == 1) | right & (kernels.param("m") == 1)
    single = (kernels.param("b") == 1) & ~kernels.given("bias")
    found: Flags = summed & single
    return found


def is_across(kernel: Kernel) -> bool:
    """Whether one GEMM does."""
    params, layout = kernel.params, str(kernel.params.get("layout", ""))
    if params.get("bias") or params.get("b", 1) != 1:
        return False
    left = params.get("n") == 1 and layout[:1] == "t"
    return left or (params.get("m") == 1 and layout[1:] == "n")


def are_unaligned(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    """Return 1 for each GEMM on tensor cores whose kernels are `UNALIGNED`."""
    numbers = tensor_kernels(kernels, target, maths)
    found = maths.flag(numbers == parameters.TENSOR_KERNELS.index(parameters.UNALIGNED))
    return found * (
        1.0 - maths.flag(one_of(kernels.math, tuple(parameters.SIMT_MODES)))
    )


def tensor_kernels(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    """Return the number of the kernels that compute GEMMs, of `TENSOR_KERNELS`."""
    architecture = parameters.kernels_of(target)
    m, n, k = (kernels.param(name, 1.0) for name in ("m", "n", "k"))
    matrices, found = (m > 1) & (n > 1), 0.0 * m
    tf32 = matrices & (kernels.math == parameters.TF32)
    found = maths.where(tf32, parameters.TENSOR_KERNELS.index(parameters.TF32), found)
    narrow = kernels.math == parameters.EIGHT_BITS
    found = maths.where(
        narrow, parameters.TENSOR_KERNELS.index(parameters.EIGHT_BITS), found
    )
    known = parameters.has_own(architecture, parameters.UNALIGNED)
    if known or architecture in parameters.UNALIGNED_EFFICIENCY:
        layout = kernels.text("layout")
        left = maths.where(one_of(layout, ("tn", "tt")), m, k)
        right = maths.where(one_of(layout, ("nn", "tn")), n, k)
        bytes_each = maths.where(kernels.math == parameters.TF32, 4.0, 2.0)
        bytes_each = maths.where(one_of(kernels.math, ("fp8", "int8")), 1.0, bytes_each)
        step = (_LINE_BYTES if known else _LEAST_BYTES) / bytes_each
        aligned = (left % step == 0) & (right % step == 0) & (n % step == 0)
        odd = maths.flag(matrices) * (1.0 - maths.flag(aligned))
        if not known:
            odd = odd * maths.flag(one_of(kernels.math, _OFTEN_ODD))
        found = maths.where(
            odd > 0, parameters.TENSOR_KERNELS.index(parameters.UNALIGNED), found
        )
    if maths.any(narrow):
        for dtype in parameters.QUANTISED:
            number = parameters.TENSOR_KERNELS.index(dtype)
            found = maths.where(kernels.dtype == dtype, number, found)
    return found


def tensor_kernels_of_one(one: OneSignature, target: Target) -> int:
    """Return the number of the kernels that compute one GEMM; as `tensor_kernels`.

    Most sides are even, and most types have no other kernels for odd ones, which is
    seen at once.
    """
    if one.math not in (parameters.TF32, parameters.EIGHT_BITS):
        param = one.param
        if (
            param("m", 1.0) % _ANY_STEP == 0
            and param("n", 1.0) % _ANY_STEP == 0
            and param("k", 1.0) % _ANY_STEP == 0
        ):
            return 0
        if one.math not in _OFTEN_ODD and not parameters.has_own(
            parameters.kernels_of(target), parameters.UNALIGNED
        ):
            return 0
    return int(tensor_kernels(one, target, FLOATS))
