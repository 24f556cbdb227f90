"""Layer, RMS, group and instance norms in eager PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfc.ir import AttrValue, TensorType, Work
from perfc.passes.lowering.eager.elementwise import over_rows
from perfc.passes.lowering.eager.site import (
    Eager,
    Rule,
    Site,
    Tensor,
    elementwise_launch,
    made_contiguous,
    vector_launch,
)
from perfc.passes.lowering.eager.spelled_out import calls_of, spelled_out


def _layer_norm(site: Site) -> Eager:
    """`layer_norm` and, fused since PyTorch 2.8, `rms_norm`: one kernel."""
    x, *weights = site.operands
    if calls_of(site):
        weight = weights[0] if weights else x
        bias = weights[-1] if weights else x
        return spelled_out(site, {"x": x, "w": weight, "b": bias})
    axis = site.attributes.integer("axis")
    columns = math.prod(x.shape[axis:])
    rows = math.prod(x.shape[:axis])
    kind: dict[str, AttrValue] = {"kind": "rms"} if site.op == "rms_norm" else {}
    launch = over_rows(site, "layer_norm", rows, columns, **kind)
    return Eager(f"aten::{site.op}", (*made_contiguous((x,)), launch))


def _group_norm(site: Site) -> Eager:
    """Moments per group, a small kernel that makes factors of them, one product.

    `instance_norm`, a group per channel, is a batch norm of one long batch with
    statistics of its own; its weights are repeated first
    (`group_norm_kernel.cu` and `Normalization.cpp` of ATen, PyTorch 2.x).
    """
    x, *weights = site.operands
    batch, channels = x.shape[:2]
    groups = site.attributes.integer("groups", channels)
    copies = made_contiguous((x,))
    per_sample = TensorType(x.type.dtype, (batch, channels))
    factors = Tensor(per_sample)
    if groups == channels:
        repeats = [elementwise_launch("copy", (w,), factors) for w in weights]
        norms = batch * channels
        norm = over_rows(
            site, "batch_norm", x.numel // max(norms, 1), norms, kind="training"
        )
        return Eager("aten::instance_norm", (*copies, *repeats, norm))
    rows = batch * groups
    read = Work(x.numel * 4, x.nbytes, 2 * factors.nbytes * groups // max(channels, 1))
    params: dict[str, AttrValue] = {
        "rows": rows,
        "cols": x.numel // max(rows, 1),
        "kind": "moments",
    }
    moments = vector_launch("reduction", x.type.dtype, params, read)
    launches = [*copies, moments]
    if weights:
        launches.append(elementwise_launch("scale", (factors, *weights), factors))
    inputs = (x, factors, factors)
    launches.append(elementwise_launch("scale", inputs, site.out, 2 * x.numel))
    return Eager("aten::group_norm", tuple(launches))


def _weight_norm(site: Site) -> Eager:
    """One kernel, a block a slice, which reads it twice (`cuda/WeightNorm.cu`)."""
    x = site.operands[0]
    rows = x.shape[site.attributes.integer("axis")]
    launch = over_rows(site, "layer_norm", rows, x.numel // max(rows, 1), kind="weight")
    copies = made_contiguous((x,))
    return Eager("aten::_weight_norm_interface", (*copies, launch))


RULES: Mapping[str, Rule] = {
    "layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    "group_norm": _group_norm,
    "weight_norm": _weight_norm,
}
"""Rules of the norms, by op name."""
