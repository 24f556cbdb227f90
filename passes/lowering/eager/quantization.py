"""Quantising in eager PyTorch: elementwise kernels, and the range of a tensor."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir import AttrValue, TensorType, Work
from perfc.ir.dims import ceil_div
from perfc.ir.ops.wire import WIRE_BLOCK
from perfc.passes.lowering.eager.movement import memcpy_launch
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    elementwise_launch,
    made_contiguous,
    rows_and_columns,
    vector_launch,
)

_RANGE_BYTES = 4
"""Bytes of a minimum or a maximum that the host reads."""


def _quantize(site: Site) -> Eager:
    per = "channel" if site.operands[1].type.rank else "tensor"
    launch = elementwise_launch(site.op, site.operands, site.out, site.work.flops)
    if site.attributes.flag("transposed"):
        return Eager("transformer_engine::cast_transpose", (_both_ways(launch, site),))
    return Eager(f"quantized_decomposed::{site.op}_per_{per}", (launch,))


def _both_ways(launch: Launch, site: Site) -> Launch:
    """Let a kernel write its result also transposed: by tiles, as fast as it lies."""
    work = site.work
    params = launch.kernel.params.updated(bytes=work.bytes)
    return attrs.evolve(
        launch, kernel=attrs.evolve(launch.kernel, params=params, work=work)
    )


def _dynamic_quantize(site: Site) -> Eager:
    """`quantize_per_tensor_dynamic` reads minimum and maximum back to the host.

    With a scale for each row or block it is one kernel, as of vLLM or torchao.
    """
    x = site.operands[0]
    if site.attributes.get("axis") is not None:
        return _quantize_rows(site)
    launches = [*_extreme(site, "min"), *_extreme(site, "max")]
    launches.append(elementwise_launch("quantize", (x,), site.out, 3 * x.numel))
    return Eager("aten::quantize_per_tensor_dynamic", tuple(launches))


def _quantize_rows(site: Site) -> Eager:
    x = site.operands[0]
    rows, cols = rows_and_columns(x.shape)
    blocks = site.attributes.get("block_size") is not None
    params: dict[str, AttrValue] = {
        "rows": rows,
        "cols": cols,
        "scales": "blocks" if blocks else "rows",
    }
    launch = vector_launch("quantize", x.type.dtype, params, site.work)
    name = "per_token_group_quant" if blocks else "dynamic_per_token_scaled_quant"
    return Eager(f"_C::{name}", (*made_contiguous((x,)), launch))


def _amax(site: Site) -> Eager:
    """`torch.aminmax` on the device: of the tensor, its rows, or blocks of those."""
    x = site.operands[0]
    count = max(site.out.numel, 1)
    params: dict[str, AttrValue] = {
        "rows": count,
        "cols": x.numel // count,
        "kind": "max",
    }
    launch = vector_launch("reduction", x.type.dtype, params, site.work)
    return Eager("aten::amax", (*made_contiguous((x,)), launch))


def _extreme(site: Site, kind: str) -> tuple[Launch, Launch]:
    x = site.operands[0]
    params: dict[str, AttrValue] = {"rows": 1, "cols": x.numel, "kind": kind}
    work = Work(x.numel, x.nbytes, _RANGE_BYTES)
    return (
        vector_launch("reduction", x.type.dtype, params, work),
        memcpy_launch(_RANGE_BYTES, "d2h", pinned=False, dtype="fp32"),
    )


def _encode_rows(site: Site) -> Eager:
    """In blocks: a kernel of its own finds scales and biases first."""
    x, out = site.operands[0], site.out
    if out.type.dtype.is_float:
        return Eager("aten::to", (elementwise_launch("cast", (x,), out),))
    blocks = ceil_div(x.numel, WIRE_BLOCK)
    params: dict[str, AttrValue] = {"rows": blocks, "cols": WIRE_BLOCK, "kind": "max"}
    beside = out.nbytes - x.numel
    ranges = vector_launch(
        "reduction", x.type.dtype, params, Work(2 * x.numel, x.nbytes, beside)
    )
    numbers = Tensor(TensorType(out.type.dtype, x.shape))
    launch = _one_by_one("quantize", x, numbers)
    return Eager("fbgemm::FloatToFused8BitRowwiseQuantized", (ranges, launch))


def _decode_rows(site: Site) -> Eager:
    x, out = site.operands[0], site.out
    if x.type.dtype.is_float:
        return Eager("aten::to", (elementwise_launch("cast", (x,), out),))
    launch = _one_by_one("dequantize", x, out)
    return Eager("fbgemm::Fused8BitRowwiseQuantizedToFloat", (launch,))


def _one_by_one(kind: str, x: Tensor, out: Tensor) -> Launch:
    """Launch a kernel of fbgemm's, each thread of which moves one element."""
    launch = elementwise_launch(kind, (x,), out, 2 * out.numel)
    params = launch.kernel.params.updated(scattered=True)
    return attrs.evolve(launch, kernel=attrs.evolve(launch.kernel, params=params))


RULES: Mapping[str, Rule] = {
    "quantize": _quantize,
    "dequantize": _quantize,
    "dynamic_quantize": _dynamic_quantize,
    "amax": _amax,
    "encode_rows": _encode_rows,
    "decode_rows": _decode_rows,
}
"""Rules of the ops between floats and integers, by op name."""
