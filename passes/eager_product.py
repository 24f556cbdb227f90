"""Matrix products and convolutions in eager PyTorch.

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

from perfc.ir import AttrValue, Kernel, Record, Work
from perfc.passes.eager import (
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
    unmodelled_launch,
)

_MATRIX = 2
_BATCHED = 3
_IMAGE = 4

Sizes: TypeAlias = tuple[int, int, int, int]
"""b, m, n and k."""


def _gemm(site: Site, sizes: Sizes, layout: str, *, bias: bool = False) -> Launch:
    dtype = site.operands[0].type.dtype
    params: dict[str, AttrValue] = dict(zip("bmnk", sizes, strict=True))
    params["layout"] = layout
    if bias:
        params["bias"] = True
    math_mode = site.settings.product_math(dtype)
    return Launch(
        Kernel("gemm", dtype_name(dtype), math_mode, Record(params), site.work)
    )


def _letter(tensor: Tensor) -> str:
    return "t" if tensor.layout is Layout.TRANSPOSED else "n"


def _linear(site: Site) -> Eager:
    """`addmm` on the flattened rows.

    The bias of one product is added by its kernel (cublasLt, where the output
    has more than one column), or copied into the output first.
    """
    x, weight = site.operands[:2]
    n = site.out.shape[-1]
    k = x.shape[-1]
    m = math.prod(x.shape[:-1])
    flat = x.type.rank <= _MATRIX
    launches = list(made_contiguous(() if flat else (x,)))
    transposed = flat and x.layout is Layout.TRANSPOSED
    stored_kn = site.attributes.flag("weight_is_kn") != (
        weight.layout is Layout.TRANSPOSED
    )
    layout = ("t" if transposed else "n") + ("n" if stored_kn else "t")
    bias = len(site.operands) > _MATRIX
    fused = site.settings.fused_bias and n != 1
    if bias and not fused:
        launches.append(elementwise_launch("copy", site.operands[2:], site.out))
    launches.append(_gemm(site, (1, m, n, k), layout, bias=bias))
    return Eager("aten::linear", tuple(launches))


def _matmul(site: Site) -> Eager:
    """`bmm` on two batches, else `matmul`; batch axes are flattened."""
    left, right = site.operands
    batched = left.type.rank == right.type.rank == _BATCHED
    name = "aten::bmm" if batched else "aten::matmul"
    b = math.prod(site.out.shape[: site.out.type.rank - _matrix_axes(left, right)])
    m = left.shape[-2] if left.type.rank > 1 else 1
    n = right.shape[-1] if right.type.rank > 1 else 1
    if right.type.rank <= _MATRIX:
        m, b = m * b, 1
    launches = [*_flattened(left), *_flattened(right)]
    layout = _letter(left) + _letter(right)
    launches.append(_gemm(site, (b, m, n, left.shape[-1]), layout))
    return Eager(name, tuple(launches))


def _matrix_axes(left: Tensor, right: Tensor) -> int:
    """Axes of the result that are not batch axes: a vector operand has none."""
    return (left.type.rank > 1) + (right.type.rank > 1)


def _flattened(tensor: Tensor) -> tuple[Launch, ...]:
    """A batch of more than one axis has to flatten to one; else BLAS has strides."""
    if tensor.layout is Layout.STRIDED and tensor.type.rank > _BATCHED:
        return (scratch(copy_launch(tensor)),)
    return ()


def _conv(site: Site) -> Eager:
    x, weight = site.operands[:2]
    name = f"aten::conv{x.type.rank - _MATRIX}d"
    if x.type.rank > _IMAGE:
        return Eager(name, (unmodelled_launch("conv3d", site),))
    dtype = x.type.dtype
    params: dict[str, AttrValue] = {
        "n": x.shape[0],
        "c_in": x.shape[1],
        "c_out": weight.shape[0],
        "kernel": _square(weight.shape[2:]),
        "size": _square(x.shape[2:]),
        "stride": _square(site.attributes.integers("stride") or (1,)),
        "padding": _square(_one_sided(site.attributes.integers("padding"))),
    }
    if (groups := site.attributes.integer("groups", 1)) != 1:
        params["groups"] = groups
    if max(dilation := site.attributes.integers("dilation") or (1,)) > 1:
        params["dilation"] = _square(dilation)
    work = site.work
    kernel = Kernel(
        "conv2d",
        dtype_name(dtype),
        site.settings.product_math(dtype),
        Record(params),
        _without_bias(site, work),
    )
    launches = [*made_contiguous((x, weight)), Launch(kernel)]
    if len(site.operands) > _MATRIX:  # cuDNN convolves; PyTorch adds the bias after
        inputs = (site.out, site.operands[2])
        launches.append(elementwise_launch("add", inputs, site.out, site.out.numel))
    return Eager(name, tuple(launches))


def _without_bias(site: Site, work: Work) -> Work:
    bias = sum(tensor.nbytes for tensor in site.operands[2:])
    return Work(work.flops, work.bytes_read - bias, work.bytes_written)


def _one_sided(padding: tuple[int, ...]) -> tuple[int, ...]:
    """Padding before each axis; where the sides differ, the larger one."""
    axes = len(padding) // 2
    return tuple(map(max, padding[:axes], padding[axes:])) or (0,)


def _square(sizes: tuple[int, ...]) -> AttrValue:
    """One number where all axes agree, as in measured rows."""
    return sizes[0] if len(set(sizes)) == 1 else sizes


RULES: Mapping[str, Rule] = {"linear": _linear, "matmul": _matmul, "conv": _conv}
"""Rules of the products by op name."""
