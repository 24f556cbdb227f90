"""Attention in eager PyTorch.

`F.scaled_dot_product_attention` is one kernel: flash attention for half
precision without a mask from Ampere on, else the memory-efficient kernel. The
latter has no grouped queries: PyTorch then falls back on copies of the keys and
values and plain GEMMs (`sdp_utils.cpp`, PyTorch 2.5 and later). Both read heads
where they lie.

A run may ask for another kernel (`lower-kernels{attention=...}`), as `sdpa_kernel` and
packages of their own do; where that one cannot run, it is what PyTorch takes unasked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from perfc.ir import AttrValue, Kernel, Record, TensorType
from perfc.ir.choices import ATTENTION_KERNELS
from perfc.ir.ops.attention import full_mask
from perfc.passes.lowering.eager.attention.patterns import has_pattern, without_loops
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Layout,
    Rule,
    Site,
    Tensor,
    copy_launch,
    dtype_name,
    elementwise_launch,
    vector_launch,
)
from perfc.passes.lowering.eager.spelled_out import calls_of, spelled_out

FLASH, EFFICIENT, MATH = "flash", "efficient", "math"

_NAME = "aten::scaled_dot_product_attention"
_FLASH = frozenset({"fp16", "bf16"})
_FLASH_HEAD_DIM = 256
"""Larger heads have no flash kernel."""
_HEADS_RANK = 4


def _attention(site: Site) -> Eager:
    q, k = site.operands[:2]
    grouped = q.shape[:-2] != k.shape[:-2]
    site = _as_compiled(site)
    if calls_of(site):
        repeats, plain = _with_own_heads(site) if grouped else ((), site)
        eager = spelled_out(plain, _letters(plain))
        return attrs.evolve(eager, launches=(*repeats, *eager.launches))
    algorithm = algorithm_of(site)
    if algorithm == MATH:
        return _as_gemms(site, grouped=grouped)
    kernel = Kernel(
        "attention",
        dtype_name(q.type.dtype),
        site.settings.gemm_math(q.type.dtype),
        Record({**attention_sizes(site), "algorithm": algorithm}),
        site.work,
    )
    # Flash attention writes as the queries lie (`empty_like` in `flash_api.cpp`).
    # The memory-efficient kernel writes heads side by side.
    if algorithm != EFFICIENT and q.contiguous:
        layout = Layout.CONTIGUOUS
    else:
        layout = Layout.HEADS if q.type.rank == _HEADS_RANK else Layout.CONTIGUOUS
    return Eager(_NAME, (*_turned(site), Launch(kernel)), (layout,))


def _as_compiled(site: Site) -> Site:
    """Return the calls that Inductor leaves of attention that it has no pattern for."""
    calls = site.attributes.get("spelled_out")
    settings = site.settings
    if settings.spelled_out or not settings.patterns or not isinstance(calls, tuple):
        return site
    texts = tuple(map(str, calls))
    if has_pattern(texts, settings.gemm_math(site.operands[0].type.dtype)):
        return site
    return attrs.evolve(
        site,
        attributes=site.attributes.updated(spelled_out=without_loops(texts)),
        settings=attrs.evolve(settings, spelled_out=True),
    )


def algorithm_of(site: Site) -> str:
    """Return which kernel computes the attention of operands 0 to 2."""
    q, k = site.operands[:2]
    masked = len(site.operands) > 3  # q, k, v and masks
    narrow = dtype_name(q.type.dtype) in _FLASH and q.shape[-1] <= _FLASH_HEAD_DIM
    asked = site.settings.attention
    if asked == MATH:
        return MATH
    if asked != EFFICIENT and narrow and not masked and site.settings.newer_than_volta:
        return FLASH if asked == ATTENTION_KERNELS[0] else asked
    return MATH if q.shape[:-2] != k.shape[:-2] else EFFICIENT


def attention_sizes(site: Site) -> dict[str, AttrValue]:
    """Describe the attention of operands 0 to 2 as measured rows do."""
    q, k = site.operands[:2]
    batch, heads = (q.shape[0], q.shape[1] if q.type.rank == _HEADS_RANK else 1)
    sizes: dict[str, AttrValue] = {
        "batch": batch,
        "heads": heads,
        "q_len": q.shape[-2],
        "kv_len": k.shape[-2],
        "head_dim": q.shape[-1],
        "causal": site.attributes.flag("causal"),
    }
    if q.type.rank == _HEADS_RANK and k.shape[1] != heads:
        sizes["kv_heads"] = k.shape[1]
    return sizes


def _turned(site: Site) -> tuple[Launch, ...]:
    """Copy what does not lie head by head: rows must have their elements together."""
    return tuple(
        copy_launch(tensor)
        for tensor in site.operands[:3]
        if tensor.layout is Layout.TRANSPOSED
    )


def _as_gemms(site: Site, *, grouped: bool) -> Eager:
    """The math path: `repeat_interleave` of grouped queries, then GEMMs."""
    repeats, plain = _with_own_heads(site) if grouped else ((), site)
    masked = site.attributes.flag("causal") or len(site.operands) > 3
    calls = (
        "mul(q)",
        "mul(k)",
        "matmul(q, k)",
        *(("add(s, m)",) if masked else ()),
        "softmax(s)",
    )
    plain = attrs.evolve(
        plain,
        attributes=site.attributes.updated(spelled_out=(*calls, "matmul(s, v)")),
        settings=attrs.evolve(site.settings, spelled_out=True),
    )
    eager = spelled_out(plain, _letters(plain))
    inner = tuple(attrs.evolve(launch, op="") for launch in eager.launches)
    return Eager(_NAME, (*repeats, *inner))


def _with_own_heads(site: Site) -> tuple[tuple[Launch, ...], Site]:
    """Copy keys and values for each head that shares them."""
    q, *rest = site.operands[:3]
    copies = [
        attrs.evolve(t, layout=Layout.CONTIGUOUS, type=_repeated(t.type, q.shape[1]))
        for t in rest
    ]
    repeats = tuple(
        elementwise_launch("copy", (source,), copy)
        for source, copy in zip(rest, copies, strict=True)
    )
    return repeats, attrs.evolve(site, operands=(q, *copies, *site.operands[3:]))


def _repeated(type_: TensorType, heads: int) -> TensorType:
    batch, _, length, width = type_.shape
    return attrs.evolve(type_, shape=(batch, heads, length, width))


def _letters(site: Site) -> dict[str, Tensor]:
    """What the letters stand for; keys are read transposed."""
    q, k, v, *masks = site.operands
    square = TensorType(q.type.dtype, (q.shape[-2], k.shape[-2]))
    mask = max(masks, key=lambda t: t.numel) if masks else Tensor(square)
    shown = full_mask(mask.shape, k.shape[-2])
    mask = attrs.evolve(mask, type=attrs.evolve(mask.type, shape=shown))
    shape = (*k.shape[:-2], k.shape[-1], k.shape[-2])
    turned = Layout.TRANSPOSED if k.contiguous else Layout.STRIDED
    kt = attrs.evolve(k, type=attrs.evolve(k.type, shape=shape), layout=turned)
    return {"q": q, "k": kt, "v": v, "m": mask}


def _rotary(site: Site) -> Eager:
    """`x * cos + rotate_half(x) * sin`, or one kernel where the file has one op."""
    x, cos, sin = site.operands
    if calls_of(site):
        half_shape = (*x.shape[:-1], x.shape[-1] // 2)
        half = Tensor(attrs.evolve(x.type, shape=half_shape))
        letters = {"x": x, "h": half, "c": cos, "s": sin}
        return spelled_out(site, letters)
    rows, columns = x.numel // max(x.shape[-1], 1), x.shape[-1]
    params: dict[str, AttrValue] = {
        "kind": "rotary",
        "rows": rows,
        "cols": columns,
        "tensor_inputs": 1,
        "bytes": math.trunc(site.work.bytes),
    }
    launch = vector_launch("elementwise", x.type.dtype, params, site.work)
    return Eager("rotary", (launch,), (x.layout,))


RULES: Mapping[str, Rule] = {"attention": _attention, "rotary": _rotary}
"""Rules of attention, by op name."""
