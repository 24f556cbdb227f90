"""Gradients of attention in eager PyTorch.

The kernel that computed the attention decides (`forward.py`):

- flash: sums of the gradient times the result, the kernel that computes the scores
  again, and the conversion of the queries' gradient from fp32 (`flash_bwd_dot_do_o`,
  `…_dq_dk_dv_loop_seqk_parallel`, `…_convert_dq` of FlashAttention 2); with grouped
  queries the gradients of the copied keys and values are summed up after.
- memory-efficient: one kernel, which for fp32 (and on V100) reads those sums from
  steps before it (`kKernelComputesDelta` in `attention_backward.cu`).
- plain GEMMs, where asked for and for grouped queries without flash: each step's own
  gradient.

One kernel computes all gradients, whichever are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir import AttrValue, Kernel, Record, TensorType, Work
from perfc.ir.types import parse_dtype
from perfc.passes.lowering.eager.attention.forward import (
    EFFICIENT,
    FLASH,
    MATH,
    algorithm_of,
    attention_sizes,
)
from perfc.passes.lowering.eager.gemm import gemm_launch
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Layout,
    Rule,
    Site,
    Tensor,
    dtype_name,
    elementwise_launch,
    scratch,
    vector_launch,
    wanted_gradients,
)

_NAME = "aten::_scaled_dot_product_{}_attention_backward"
_HEADS_RANK = 4
_FP32 = parse_dtype("f32")
_FP32_BYTES = 4


def _attention_backward(site: Site) -> Eager:
    _, q, k, v, *rest = site.operands
    forward = attrs.evolve(site, operands=(q, k, v, *rest[1:]))
    grouped = q.shape[:-2] != k.shape[:-2]
    algorithm = algorithm_of(forward)
    if algorithm == MATH:
        launches = [*_math(site), *(_summed_heads(t, q) for t in (k, v) if grouped)]
        return Eager(_NAME.format(MATH), tuple(launches))
    if algorithm == EFFICIENT:
        launches = [*_delta(site), _main(site, forward, EFFICIENT)]
        return _eager(site, EFFICIENT, tuple(launches))
    return _flash(site, forward, algorithm, grouped=grouped)


def _eager(site: Site, algorithm: str, launches: tuple[Launch, ...]) -> Eager:
    """Flash writes gradients as their operands lie; a mask's is contiguous."""
    operands: dict[str, Tensor] = {}
    operands.update(zip(("q", "k", "v"), site.operands[1:4], strict=True))

    def layout(want: str) -> Layout:
        operand = operands.get(want)
        if operand is None or operand.type.rank != _HEADS_RANK:
            return Layout.CONTIGUOUS
        follows = algorithm != EFFICIENT and operand.contiguous
        return Layout.CONTIGUOUS if follows else Layout.HEADS

    layouts = tuple(map(layout, wanted_gradients(site)))
    return Eager(_NAME.format(algorithm), launches, layouts)


def _flash(site: Site, forward: Site, algorithm: str, *, grouped: bool) -> Eager:
    grad, q, k, v, out = site.operands[:5]
    accumulated = q.numel * _FP32_BYTES
    sums = Work(2 * out.numel, grad.nbytes + out.nbytes, accumulated)
    params = _rows(out, "attention_delta")
    launches = [
        scratch(vector_launch("reduction", q.type.dtype, params, sums)),
        _main(site, forward, algorithm),
        _converted(q, accumulated),
    ]
    if grouped:
        launches += [_summed_heads(tensor, q) for tensor in (k, v)]
    name = algorithm if algorithm == "cudnn" else FLASH
    return _eager(site, name, tuple(launches))


def _rows(tensor: Tensor, kind: str) -> dict[str, AttrValue]:
    columns = tensor.shape[-1]
    return {"rows": tensor.numel // max(columns, 1), "cols": columns, "kind": kind}


def _main(site: Site, forward: Site, algorithm: str) -> Launch:
    q = site.operands[1]
    sizes = {**attention_sizes(forward), "algorithm": algorithm, "phase": "backward"}
    dtype = q.type.dtype
    mode = site.settings.gemm_math(dtype)
    kernel = Kernel("attention", dtype_name(dtype), mode, Record(sizes), site.work)
    return Launch(kernel)


def _converted(q: Tensor, accumulated: int) -> Launch:
    launch = elementwise_launch("convert_dq", (q,), q)
    work = Work(0, accumulated, q.nbytes)
    params = launch.kernel.params.updated(bytes=work.bytes)
    return Launch(attrs.evolve(launch.kernel, params=params, work=work))


def _summed_heads(tensor: Tensor, q: Tensor) -> Launch:
    """Sum the gradients of the heads that read one key or value."""
    copies = q.shape[1] // max(tensor.shape[1], 1)
    params: dict[str, AttrValue] = {
        "rows": tensor.numel,
        "cols": copies,
        "kind": "sum",
    }
    read = copies * tensor.nbytes
    work = Work(copies * tensor.numel, read, tensor.nbytes)
    return vector_launch("reduction", tensor.type.dtype, params, work)


def _delta(site: Site) -> tuple[Launch, ...]:
    """Sum the gradient times the result over each row, where the kernel does not."""
    grad, out = site.operands[0], site.operands[4]
    narrow = grad.type.dtype.bits < 32  # fp16, bf16
    if narrow and site.settings.newer_than_volta:
        return ()
    wide = _as_fp32(grad.type)
    casts = [elementwise_launch("cast", (t,), wide) for t in (grad, out)] * narrow
    product = elementwise_launch("mul", (wide, wide), wide, wide.numel)
    row = Tensor(attrs.evolve(wide.type, shape=wide.shape[:-1]))
    work = Work(wide.numel, wide.nbytes, row.nbytes)
    params = _rows(wide, "sum")
    summed = vector_launch("reduction", wide.type.dtype, params, work)
    steps = (*casts, product, summed, elementwise_launch("copy", (row,), row))
    return tuple(map(scratch, steps))


def _as_fp32(type_: TensorType) -> Tensor:
    return Tensor(attrs.evolve(type_, dtype=_FP32))


def _math(site: Site) -> list[Launch]:
    """GEMMs of every head, and the gradient of softmax between them."""
    grad, q, k, v = site.operands[:4]
    heads, rows, width = (
        q.numel // (q.shape[-1] * q.shape[-2]),
        q.shape[-2],
        q.shape[-1],
    )
    keys, depth = k.shape[-2], v.shape[-1]
    scores = Tensor(attrs.evolve(q.type, shape=(heads, rows, keys)))
    softmax = vector_launch(
        "softmax",
        q.type.dtype,
        {"rows": heads * rows, "cols": keys, "kind": "backward"},
        Work(4 * scores.numel, 2 * scores.nbytes, scores.nbytes),
    )
    return [
        gemm_launch(site, (heads, keys, depth, rows), "tn"),
        gemm_launch(site, (heads, rows, keys, depth), "nt"),
        elementwise_launch("mul", (scores, scores), scores, scores.numel),
        softmax,
        gemm_launch(site, (heads, rows, width, keys), "nn"),
        gemm_launch(site, (heads, keys, width, rows), "tn"),
        elementwise_launch("mul", (q,), q, q.numel),
        elementwise_launch("mul", (grad,), grad, grad.numel),
    ]


RULES: Mapping[str, Rule] = {"attention_backward": _attention_backward}
"""Rules of the gradients of attention, by op name."""
