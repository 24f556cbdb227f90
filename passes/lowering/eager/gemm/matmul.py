"""GEMMs in eager PyTorch.

`layout` of a GEMM is about row-major C[b,m,n] = A[b,m,k] B[b,k,n]: the first
letter is `n` where A is stored as [m,k] and `t` where it is stored as [k,m]; the
second is `n` where B is stored as [k,n] and `t` where it is stored as [n,k]. So
`linear`, whose weight is [n,k], is `nt`. (The suffix of a cuBLAS kernel's name is
about column-major matrices and reads the other way round: `sgemm_tn`.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from perfc.costmodels.gemm import QUANTISED
from perfc.ir import AttrValue, DType, Kernel, Record, TensorType, Work
from perfc.passes.lowering.eager.site import (
    BYTE,
    HEADS,
    MEMSET,
    PARTS,
    Eager,
    Launch,
    Layout,
    Rule,
    Site,
    Tensor,
    copy_launch,
    dtype_name,
    elementwise_launch,
    made_contiguous,
    scratch,
    vector_launch,
)

_MATRIX = 2
_BATCHED = 3

Sizes: TypeAlias = tuple[int, int, int, int]
"""b, m, n and k."""


def gemm_launch(
    site: Site,
    sizes: Sizes,
    layout: str,
    *,
    bias: bool = False,
    work: Work | None = None,
) -> Launch:
    """Launch a GEMM of operand 0's type; its work follows from the sizes."""
    dtype = _multiplied(site)
    params: dict[str, AttrValue] = dict(zip("bmnk", sizes, strict=True))
    params["layout"] = layout
    if bias:
        params["bias"] = True
    if (bits := site.attributes.get("sum_bits")) is not None and site.settings.on_cpu:
        params["sum_bits"] = bits
    math_mode = site.settings.gemm_math(dtype)
    if work is None:
        work = _gemm_work(sizes, dtype.bits / BYTE)
    name = _spelled(dtype)
    return Launch(Kernel("gemm", name, math_mode, Record(params), work))


def _spelled(dtype: DType) -> str:
    """Return how rows of GEMMs spell a type: signed or not, integers run alike."""
    name = dtype_name(dtype)
    return name.removeprefix("u") if dtype.bits <= BYTE else name


def _multiplied(site: Site) -> DType:
    """Return the type that is multiplied in: the operands', widened if it must be.

    A device without GEMMs of integers multiplies in the result's 16 bits, which 8 fit
    in: operands are widened in registers.
    """
    dtype, out = site.operands[0].type.dtype, site.results[0].dtype
    if dtype.is_float or dtype.bits > BYTE or site.settings.int8_gemms == "int8":
        return dtype
    return out if out.is_float and out.bits < _WIDE else dtype


def gemm_launches(
    site: Site,
    sizes: Sizes,
    layout: str,
    *,
    bias: bool = False,
    work: Work | None = None,
) -> tuple[Launch, ...]:
    """Launch a GEMM as cuBLAS does, with what it launches beside it.

    Where the tiles of the result leave SMs idle and the sum is deep, cuBLAS cuts the
    sum into parts, which a second kernel (`splitKreduce_kernel`) adds up. In 150 shapes
    of fp32 and TF32 GEMMs in traces of V100 and A100 (DLRM, ResNet-50) that goes
    with depth over 64 x 64 tiles; `_SPLIT_RATIO` divides all but those few whose kernel
    adds the parts up itself. No narrower type was seen to have a second kernel. Of
    those, large GEMMs find their counters set to zero by a memset: in traces of
    A100 (Megatron) and H100 (Qwen) 6 of 7 shapes by this rule. MKL and oneDNN on a CPU
    have nothing beside.
    """
    gemm = gemm_launch(site, sizes, layout, bias=bias, work=work)
    if site.settings.on_cpu:
        return (gemm,)
    if parts := _split_parts(site, sizes, gemm.kernel.math):
        b, m, n, _ = sizes
        joined = _joined_parts(site, (b * m, n), parts)
        return (_with_beside(gemm, joined), joined)
    if _has_counters(site, sizes):
        counters = attrs.evolve(
            vector_launch("elementwise", site.operands[0].type.dtype, _FILL, _FILLED),
            call=MEMSET,
        )
        return (counters, _with_beside(gemm, counters))
    return (gemm,)


def _split_parts(site: Site, sizes: Sizes, math_mode: str) -> int:
    """Return into how many parts the sum is cut; 0 for one that is not."""
    b, m, n, k = sizes
    # The matrices of a batch fill the SMs without a split, and a matrix times a vector
    # is computed by a GEMV kernel, which the rule does not describe.
    if b > 1 or min(m, n) <= 1 or math_mode not in _SPLIT_MODES:
        return 0
    tiles = -(-m // _TILE) * -(-n // _TILE)
    # Writing and joining the parts has to be paid for by depth that runs in parallel.
    least = _SPLIT_DEPTH if min(m, n) > _SKINNY else 2 * _SPLIT_DEPTH
    if k < least or k * site.settings.sm_count < _SPLIT_RATIO * tiles:
        return 0
    # As many parts as give each SM a tile, rounded down to a power of two, and none of
    # them shorter than a tile is wide.
    idle = max(2, site.settings.sm_count // tiles)
    return min(_MOST_PARTS, 1 << (idle.bit_length() - 1), max(2, k // _TILE))


_TILE = 64
_SPLIT_MODES = frozenset({"fp32", "tf32"})
_SPLIT_DEPTH = 256
"""Least depth; twice that where a matrix has few rows, for which there is a kernel."""
_SKINNY = 16
_SPLIT_RATIO = 1400
"""Depth times SMs for each tile from which on a sum is split."""
_MOST_PARTS = 16
_PARTIAL_BYTES = 4


def _joined_parts(site: Site, shape: tuple[int, int], parts: int) -> Launch:
    rows, columns = shape
    item = site.operands[0].type.dtype.bits // BYTE
    elements = rows * columns
    work = Work(0, parts * elements * _PARTIAL_BYTES, elements * item)
    params: dict[str, AttrValue] = {
        "kind": "join_parts",
        "rows": rows,
        "cols": columns,
        "tensor_inputs": parts,
        "bytes": work.bytes,
    }
    dtype = site.operands[0].type.dtype
    launch = vector_launch("elementwise", dtype, params, work)
    return attrs.evolve(launch, detail=PARTS)


def _with_beside(gemm: Launch, beside: Launch) -> Launch:
    """Say what was launched beside: measured rows are of both together."""
    params = gemm.kernel.params.updated(
        beside=1, beside_bytes=math.trunc(beside.kernel.work.bytes)
    )
    return attrs.evolve(gemm, kernel=attrs.evolve(gemm.kernel, params=params))


def _has_counters(site: Site, sizes: Sizes) -> bool:
    b, m, n, k = sizes
    dtype = site.operands[0].type.dtype
    if b > 1 or not dtype.is_float or dtype.bits >= _WIDE or k < _COUNTED_DEPTH:
        return False
    tiles = -(-m // _LARGE_TILE) * -(-n // _LARGE_TILE)
    return tiles >= 2 * site.settings.sm_count


_WIDE = 32
_LARGE_TILE = 128
_COUNTED_DEPTH = 1024
_COUNTERS_BYTES = 4096
_FILLED = Work(0, 0, _COUNTERS_BYTES)
_FILL: dict[str, AttrValue] = {
    "kind": "memset",
    "rows": 1,
    "cols": _COUNTERS_BYTES,
    "tensor_inputs": 0,
    "bytes": _COUNTERS_BYTES,
}


def _gemm_work(sizes: Sizes, item_bytes: float) -> Work:
    b, m, n, k = sizes
    read = math.ceil(b * (m * k + k * n) * item_bytes)
    return Work(2 * b * m * n * k, read, math.ceil(b * m * n * item_bytes))


def _letter(tensor: Tensor) -> str:
    return "t" if tensor.layout is Layout.TRANSPOSED else "n"


def _linear(site: Site) -> Eager:
    """`addmm` on the flattened rows.

    The bias of one GEMM is added by its kernel (cublasLt, where the output
    has more than one column), or copied into the output first.
    """
    x, weight = site.operands[:2]
    n = site.out.shape[-1]
    k = x.shape[-1]
    m = math.prod(x.shape[:-1])
    flat = x.type.rank <= _MATRIX
    launches = list(made_contiguous(() if flat else (x,)))
    transposed = flat and x.layout is Layout.TRANSPOSED
    kn = site.attributes.flag("weight_is_kn")
    kn = kn and not site.attributes.flag("transposed_by_exporter")
    stored_kn = kn != (weight.layout is Layout.TRANSPOSED)
    layout = ("t" if transposed else "n") + ("n" if stored_kn else "t")
    bias = len(site.operands) > _MATRIX
    fused = site.settings.fused_bias and n != 1
    if bias and not fused:
        launches.append(elementwise_launch("copy", site.operands[2:], site.out))
    sizes = (1, m, n, k)
    launches += gemm_launches(site, sizes, layout, bias=bias, work=site.work)
    return Eager("aten::linear", tuple(launches))


def _matmul(site: Site) -> Eager:
    """`bmm` on two batches, else `matmul`; batch axes are flattened."""
    left, right = site.operands[:2]
    batched = left.type.rank == right.type.rank == _BATCHED
    name = "aten::bmm" if batched else "aten::matmul"
    b = math.prod(
        site.out.shape[
            : site.out.type.rank - ((left.type.rank > 1) + (right.type.rank > 1))
        ]
    )
    m = left.shape[-2] if left.type.rank > 1 else 1
    turned = site.attributes.flag("weight_is_nk")
    n = right.shape[-2 if turned else -1] if right.type.rank > 1 else 1
    if right.type.rank <= _MATRIX:
        m, b = m * b, 1
    launches = [*_flattened(left), *_flattened(right)]
    layout = _letter(left) + ("t" if turned else _letter(right))
    sizes = (b, m, n, left.shape[-1])
    if scales := _scales(site, m):
        gemm = gemm_launch(site, sizes, layout, work=site.work)
        # Say what scales are of; the kernel that found them is one of its own.
        kernel = gemm.kernel
        params = kernel.params.updated(quantized=True)
        kernel = attrs.evolve(kernel, dtype=_TYPES[scales], params=params)
        return Eager("aten::_scaled_mm", (*launches, attrs.evolve(gemm, kernel=kernel)))
    launches += gemm_launches(site, sizes, layout, work=site.work)
    return Eager(name, tuple(launches))


def _scales(site: Site, rows: int) -> str:
    """Name the parts of an 8-bit left operand that have a scale each: rows, blocks."""
    left = site.operands[0].type.dtype
    if len(site.operands) <= _MATRIX or dtype_name(left) != _EIGHT_BITS:
        return ""
    count = site.operands[_MATRIX].numel
    if count == rows:
        return "rows"
    return "blocks" if count > rows else ""


_EIGHT_BITS = "fp8"
_TYPES = {scales: dtype for dtype, scales in QUANTISED.items()}


def _flattened(tensor: Tensor) -> tuple[Launch, ...]:
    """A batch of more than one axis has to flatten to one; else BLAS has strides."""
    scattered = tensor.layout in (Layout.STRIDED, *HEADS)
    if scattered and tensor.type.rank > _BATCHED:
        return (scratch(copy_launch(tensor)),)
    return ()


_PACKED_BITS, _HALF = (4, 8), 16
"""Bits of weights that were measured beside activations of 16."""


def _packed_linear(site: Site) -> Eager:
    """One kernel that unpacks in registers: it reads the bytes that are stored."""
    x = site.operands[0]
    k = x.shape[-1]
    m, n = math.prod(x.shape[:-1]), site.out.shape[-1]
    bits = site.attributes.integer("bits")
    launch = gemm_launch(site, (1, m, n, k), "nt", work=site.work)
    if bits in _PACKED_BITS and x.type.dtype.bits == _HALF and x.type.dtype.is_float:
        kernel = attrs.evolve(launch.kernel, dtype=f"w{bits}a{_HALF}")
        launch = attrs.evolve(launch, kernel=kernel)
    launches = (*made_contiguous((x,)), launch)
    return Eager(f"aten::_weight_int{bits}pack_mm", launches)


def _det(site: Site) -> Eager:
    """An LU factorisation, then the product of its diagonal."""
    x = site.operands[0]
    columns = x.shape[-1]
    rows = x.numel // columns if columns else 0
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns}
    factors = Work(site.work.flops, x.nbytes, x.nbytes)
    product = Work(rows, rows * x.type.dtype.bits // BYTE, site.out.nbytes)
    launches = (
        vector_launch("lu", x.type.dtype, params, factors),
        vector_launch("reduction", x.type.dtype, {**params, "kind": "prod"}, product),
    )
    return Eager("aten::linalg_det", (*made_contiguous((x,)), *launches))


def _det_backward(site: Site) -> Eager:
    """A diagonal matrix, and a solve by the factors (`linalg_lu_solve`)."""
    grad, x = site.operands[:2]
    columns = x.shape[-1]
    rows = x.numel // columns if columns else 0
    diagonal = Tensor(TensorType(x.type.dtype, x.type.shape[:-1]))
    solve = Work(site.work.flops, 2 * x.nbytes, x.nbytes)
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns, "kind": "solve"}
    launches = (
        elementwise_launch("mul", (grad, grad), grad, grad.numel),
        elementwise_launch("fill", (), x),
        elementwise_launch("copy", (diagonal,), diagonal),
        vector_launch("lu", x.type.dtype, params, solve),
    )
    return Eager("aten::linalg_lu_solve", launches)


RULES: Mapping[str, Rule] = {
    "linear": _linear,
    "matmul": _matmul,
    "packed_linear": _packed_linear,
    "det": _det,
    "det_backward": _det_backward,
}
"""Rules of the GEMMs by op name."""
