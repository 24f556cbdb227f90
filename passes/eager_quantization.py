"""Quantising in eager PyTorch: elementwise kernels, and the range of a tensor."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import AttrValue, Work
from perfc.passes.eager import (
    Eager,
    Launch,
    Rule,
    Site,
    elementwise_launch,
    vector_launch,
)
from perfc.passes.eager_movement import memcpy_launch

_RANGE_BYTES = 4
"""Of a minimum or a maximum that the host reads."""


def _quantize(site: Site) -> Eager:
    per = "channel" if site.operands[1].type.rank else "tensor"
    launch = elementwise_launch(site.op, site.operands, site.out, site.work.flops)
    return Eager(f"quantized_decomposed::{site.op}_per_{per}", (launch,))


def _dynamic_quantize(site: Site) -> Eager:
    """`quantize_per_tensor_dynamic` reads minimum and maximum back to the host."""
    x = site.operands[0]
    launches = [*_extreme(site, "min"), *_extreme(site, "max")]
    launches.append(elementwise_launch("quantize", (x,), site.out, 3 * x.numel))
    return Eager("aten::quantize_per_tensor_dynamic", tuple(launches))


def _extreme(site: Site, kind: str) -> tuple[Launch, Launch]:
    x = site.operands[0]
    params: dict[str, AttrValue] = {"rows": 1, "cols": x.numel, "kind": kind}
    work = Work(x.numel, x.nbytes, _RANGE_BYTES)
    return (
        vector_launch("reduction", x.type.dtype, params, work),
        memcpy_launch(_RANGE_BYTES, "d2h", pinned=False, dtype="fp32"),
    )


RULES: Mapping[str, Rule] = {
    "quantize": _quantize,
    "dequantize": _quantize,
    "dynamic_quantize": _dynamic_quantize,
}
"""Rules of the ops between floats and integers, by op name."""
