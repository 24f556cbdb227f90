"""Losses and their gradients in eager PyTorch.

`Loss.cpp` and `cuda/Loss.cu` of ATen, PyTorch 2.x. The table lists the kernels of a
loss without its reduction: elementwise steps, each over the whole tensor. `mse_loss`
of two kernels and its backward of two, `nll_loss` of one and two are what traces show;
`bce_with_logits` of PyTorch 2.1 and later, which no trace has, is read from the source.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import AttrValue, Work
from perfc.ir.ops.loss import LOSSES_OF_ROWS
from perfc.passes.lowering.eager.elementwise import over_rows
from perfc.passes.lowering.eager.site import (
    BYTE,
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    elementwise_launch,
    rows_and_columns,
    scratch,
    vector_launch,
)

_NAMES: Mapping[str, str] = {
    "mse": "mse_loss",
    "l1": "l1_loss",
    "smooth_l1": "smooth_l1_loss",
    "huber": "huber_loss",
    "bce": "binary_cross_entropy",
    "bce_with_logits": "binary_cross_entropy_with_logits",
    "soft_margin": "soft_margin_loss",
    "multi_margin": "multi_margin_loss",
    "multilabel_margin": "multilabel_margin_loss",
}

_STEPS: Mapping[str, tuple[str, ...]] = {
    "mse": ("mse",),
    "l1": ("sub", "abs"),
    "smooth_l1": ("smooth_l1",),
    "huber": ("huber",),
    "bce": ("binary_cross_entropy",),
    "bce_with_logits": ("rsub", "mul", "log_sigmoid", "sub"),
    "soft_margin": ("neg", "mul", "exp", "log1p"),
}
"""Kernels of a loss, before it is weighted and reduced."""

_OLD_LOGITS = (
    *("neg", "clamp_min", "fill", "sub", "mul", "add"),
    *("neg", "exp", "neg", "sub", "exp", "add", "log", "add"),
)
"""Steps of `bce_with_logits` up to PyTorch 2.0, by the largest exponent: in traces."""

_BACKWARD_STEPS: Mapping[str, tuple[str, ...]] = {
    "mse": ("fill", "mse_backward"),
    "l1": ("sgn", "mul"),
    "smooth_l1": ("fill", "smooth_l1_backward"),
    "huber": ("fill", "huber_backward"),
    "bce": ("binary_cross_entropy_backward",),
    "bce_with_logits": ("sigmoid", "sub", "mul"),
    "soft_margin": ("neg", "mul", "exp", "mul", "mul_number", "add", "div", "mul"),
}
"""Kernels of a gradient, before it is weighted."""

_DIVIDED = frozenset({"l1", "bce", "bce_with_logits"})
"""Losses whose gradient a kernel of its own divides by the number of elements."""

_READS: Mapping[str, int] = {
    "fill": 0,
    **dict.fromkeys(("abs", "sgn", "sigmoid", "log_sigmoid", "neg", "exp", "log"), 1),
    **dict.fromkeys(("clamp_min", "log1p", "mul_number"), 1),
}
"""Tensors that a step reads, where they are not two."""

_POSITIVE_WEIGHT_STEPS = ("sub", "mul", "add", "mul")
"""How `pos_weight` of `bce_with_logits` comes in."""


def _loss(site: Site) -> Eager:
    kind = site.attributes.text("kind")
    reduction = site.attributes.text("reduction")
    if kind in LOSSES_OF_ROWS:
        return _loss_of_rows(site)
    x, _, *weights = site.operands
    old = kind == "bce_with_logits" and not site.settings.log_sigmoid
    steps = [*(_OLD_LOGITS if old else _STEPS[kind]), *_weighting(kind, len(weights))]
    launches = [_step(site, step, x, len(steps)) for step in steps]
    if reduction != "none":
        params: dict[str, AttrValue] = {"rows": 1, "cols": x.numel, "kind": reduction}
        work = Work(x.numel, x.nbytes, site.out.nbytes)
        launches.append(vector_launch("reduction", x.type.dtype, params, work))
    return Eager(f"aten::{_NAMES[kind]}", tuple(launches))


def _loss_of_rows(site: Site) -> Eager:
    """One kernel, a block a row (`MultiMarginLoss.cu`), whose results are added up."""
    kind, x = site.attributes.text("kind"), site.operands[0]
    rows, columns = rows_and_columns(x.shape)
    launches = [over_rows(site, "reduction", rows, columns, kind=kind)]
    if site.attributes.text("reduction") != "none":
        params: dict[str, AttrValue] = {"rows": 1, "cols": rows, "kind": "sum"}
        item = x.type.dtype.bits // BYTE
        work = Work(rows, rows * item, item)
        launches.append(vector_launch("reduction", x.type.dtype, params, work))
    return Eager(f"aten::{_NAMES[kind]}", tuple(launches))


def _weighting(kind: str, weights: int) -> tuple[str, ...]:
    """Weights of elements are multiplied in; a second one is of positives."""
    steps = ("mul",) * min(weights, 1)
    if weights > 1 and kind == "bce_with_logits":
        steps += _POSITIVE_WEIGHT_STEPS
    return steps


def _loss_backward(site: Site) -> Eager:
    kind = site.attributes.text("kind")
    _, x, _, *weights = site.operands
    name = f"aten::{_NAMES[kind]}_backward"
    if kind in LOSSES_OF_ROWS:
        rows, columns = rows_and_columns(x.shape)
        launch = over_rows(site, "reduction", rows, columns, kind=f"{kind}_backward")
        return Eager(name, (launch,))
    steps = [*_BACKWARD_STEPS[kind], *_weighting(kind, len(weights))]
    if kind in _DIVIDED and site.attributes.text("reduction") == "mean":
        steps.append("div")
    launches = tuple(_step(site, step, x, len(steps)) for step in steps)
    return Eager(name, launches)


def _step(site: Site, kind: str, x: Tensor, steps: int) -> Launch:
    inputs = (x,) * _READS.get(kind, 2)
    return elementwise_launch(kind, inputs, x, site.work.flops // steps)


def _nll_loss_backward(site: Site) -> Eager:
    """Zeros, then a number for each label."""
    scores, labels = site.operands[1:3]
    item = scores.type.dtype.bits // 8
    rows = labels.numel
    params: dict[str, AttrValue] = {"rows": rows, "cols": 1, "kind": "nll_loss"}
    work = Work(rows, labels.nbytes + item, rows * item)
    placed = vector_launch("gather", scores.type.dtype, params, work)
    flat = scores.type.rank == 2  # a row of classes per label
    name = f"aten::nll_loss{'' if flat else '2d'}_backward"
    return Eager(name, (elementwise_launch("fill", (), site.out), placed))


def _softmax_backward(site: Site) -> Eager:
    """The product with the gradient in a kernel of its own (`SoftMax.cu`)."""
    grad, y = site.operands
    product = scratch(elementwise_launch("mul", (grad, y), y, y.numel))
    return Eager("aten::_softmax_backward_data", (product, _rows(site)))


def _log_softmax_backward(site: Site) -> Eager:
    return Eager("aten::_log_softmax_backward_data", (_rows(site),))


def _rows(site: Site) -> Launch:
    y = site.operands[1]
    columns = y.shape[site.attributes.integer("axis", -1)] if y.shape else 1
    rows = y.numel // columns if columns else 0
    return over_rows(site, "softmax", rows, columns, kind="backward")


RULES: Mapping[str, Rule] = {
    "loss": _loss,
    "loss_backward": _loss_backward,
    "nll_loss_backward": _nll_loss_backward,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _log_softmax_backward,
}
"""Rules of losses and of the gradients of softmax, by op name."""
