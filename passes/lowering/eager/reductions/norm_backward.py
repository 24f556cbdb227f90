"""Gradients of norms in eager PyTorch.

`layer_norm_kernel.cu`, `group_norm_kernel.cu` and `Normalization.cpp` of ATen (PyTorch
2.x). Traces of training show two kernels of `native_layer_norm_backward`, and one of
`cudnn_batch_norm_backward` and `native_batch_norm_backward`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfc.ir import AttrValue, TensorType, Work
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    elementwise_launch,
    made_contiguous,
    scratch,
    vector_launch,
    wanted_gradients,
)

MANY_ROWS = 65536
"""Rows above which the weights' gradients are summed up in two steps."""

_ROWS_PER_BLOCK = 32
_MAX_BLOCKS = 32 * 1024
_BLOCK_COLUMNS = 32
_PER_WEIGHT = 3
"""Flops of an element in the sum over rows."""


def _layer_norm_backward(site: Site) -> Eager:
    """One kernel for the input, one for both weights: rows are summed up."""
    grad, x, *scale = site.operands
    axis = site.attributes.integer("axis")
    columns, rows = math.prod(x.shape[axis:]), math.prod(x.shape[:axis])
    wants = wanted_gradients(site)
    launches = [*made_contiguous((grad, x))]
    if "x" in wants:
        read = grad.nbytes + x.nbytes + sum(tensor.nbytes for tensor in scale)
        work = Work(9 * x.numel, read, x.nbytes)
        launches.append(_row_wise(site, "layer_norm", (rows, columns), work))
    weights = [name for name in wants if name != "x"]
    if weights:
        launches += _weight_sums(site, rows, columns, len(weights))
    name = "layer_norm" if site.op == "layer_norm_backward" else "fused_rms_norm"
    prefix = "native_" if name == "layer_norm" else "_"
    return Eager(f"aten::{prefix}{name}_backward", tuple(launches))


def _row_wise(site: Site, op: str, sizes: tuple[int, int], work: Work) -> Launch:
    params: dict[str, AttrValue] = {
        "rows": sizes[0],
        "cols": sizes[1],
        "kind": "backward",
    }
    return vector_launch(op, site.operands[1].type.dtype, params, work)


def _weight_sums(site: Site, rows: int, columns: int, weights: int) -> list[Launch]:
    x = site.operands[1]
    item = x.type.dtype.bits // 8
    partial_rows = min(
        -(-rows // _ROWS_PER_BLOCK),
        _MAX_BLOCKS // max(-(-columns // _BLOCK_COLUMNS), 1),
    )
    many = rows > MANY_ROWS
    written = weights * columns * item * (partial_rows if many else 1)
    work = Work(_PER_WEIGHT * x.numel, 2 * x.nbytes, written)
    first = _column_sum(site, rows, columns, work)
    launches = [scratch(first) if many else first]
    if many:
        each = Work(partial_rows * columns, written // weights, columns * item)
        launches += [_column_sum(site, partial_rows, columns, each)] * weights
    return launches


def _column_sum(site: Site, rows: int, columns: int, work: Work) -> Launch:
    """Sum over rows: one result for each column."""
    params: dict[str, AttrValue] = {"rows": columns, "cols": rows, "kind": "sum"}
    return vector_launch("reduction", site.operands[1].type.dtype, params, work)


def _batch_norm_backward(site: Site) -> Eager:
    """One kernel of cuDNN in training; of ATen where the statistics are fixed."""
    x = site.operands[1]
    columns = x.shape[1]
    rows = x.numel // columns if columns else 0
    training = site.attributes.flag("training")
    launch = _batch_norm_launch(site, rows, columns, training=training)
    name = "cudnn" if training else "native"
    copies = made_contiguous(site.operands[:2])
    return Eager(f"aten::{name}_batch_norm_backward", (*copies, launch))


def _batch_norm_launch(
    site: Site, rows: int, columns: int, *, training: bool
) -> Launch:
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns}
    if training:
        params["kind"] = "training"
    params["phase"] = "backward"
    return vector_launch("batch_norm", site.operands[1].type.dtype, params, site.work)


def _group_norm_backward(site: Site) -> Eager:
    """Sums per channel, two kernels of factors, one product; sums over the batch.

    An instance norm (a group per channel) is a batch norm of one long batch whose
    repeated weights get the sum over it.
    """
    grad, x, *scale = site.operands
    batch, channels = x.shape[:2]
    groups = site.attributes.integer("groups", channels)
    launches: list[Launch] = [*made_contiguous((grad, x))]
    wants = wanted_gradients(site)
    weights = sum(name != "x" for name in wants)
    per_channel = Tensor(TensorType(x.type.dtype, (batch, channels)))
    each = Work(
        per_channel.numel, per_channel.nbytes, per_channel.nbytes // max(batch, 1)
    )
    if groups == channels:
        norms = batch * channels
        rows = x.numel // max(norms, 1)
        launches.append(_batch_norm_launch(site, rows, norms, training=True))
        launches += [_column_sum(site, batch, channels, each)] * weights
        return Eager("aten::cudnn_batch_norm_backward", tuple(launches))
    sums = Work(3 * x.numel, grad.nbytes + x.nbytes, 2 * per_channel.nbytes)
    launches.append(_row_sum(site, batch * channels, sums))
    if "x" in wants:
        launches += _group_factors(site, per_channel, groups, scale)
    if weights:
        both = Work(
            weights * each.flops, 2 * each.bytes_read, weights * each.bytes_written
        )
        launches.append(_column_sum(site, batch, channels, both))
    return Eager("aten::native_group_norm_backward", tuple(launches))


def _row_sum(site: Site, rows: int, work: Work) -> Launch:
    x = site.operands[1]
    params: dict[str, AttrValue] = {
        "rows": rows,
        "cols": x.numel // max(rows, 1),
        "kind": "sum",
    }
    return vector_launch("reduction", x.type.dtype, params, work)


def _group_factors(
    site: Site, per_channel: Tensor, groups: int, scale: Sequence[Tensor]
) -> list[Launch]:
    """Factors of each channel and group, and the input's gradient made of them."""
    grad, x = tuple(Tensor(tensor.type) for tensor in site.operands[:2])
    rows = x.shape[0] * groups
    launches: list[Launch] = []
    if scale:
        scaled = (per_channel, *scale)
        launches.append(elementwise_launch("scale", scaled, per_channel))
    item = x.type.dtype.bits // 8
    fused = Work(2 * per_channel.numel, 2 * per_channel.nbytes, 2 * rows * item)
    params: dict[str, AttrValue] = {
        "rows": rows,
        "cols": per_channel.numel // max(rows, 1),
        "kind": "sum",
    }
    launches.append(vector_launch("reduction", x.type.dtype, params, fused))
    inputs = (grad, x, per_channel)
    launches.append(elementwise_launch("scale", inputs, x, 4 * x.numel))
    return launches


def _weight_norm_backward(site: Site) -> Eager:
    """One kernel for both gradients (`cuda/WeightNorm.cu`)."""
    x = site.operands[1]
    rows = x.shape[site.attributes.integer("axis")]
    sizes = (rows, x.numel // max(rows, 1))
    launch = _row_wise(site, "layer_norm", sizes, site.work)
    copies = made_contiguous(site.operands[:2])
    return Eager("aten::_weight_norm_interface_backward", (*copies, launch))


RULES: Mapping[str, Rule] = {
    "layer_norm_backward": _layer_norm_backward,
    "rms_norm_backward": _layer_norm_backward,
    "batch_norm_backward": _batch_norm_backward,
    "group_norm_backward": _group_norm_backward,
    "weight_norm_backward": _weight_norm_backward,
}
"""Rules of the gradients of norms, by op name."""
