"""Gradients of reductions, norms, convolutions, images, attention, recurrence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import attrs

from perfc.ir import DTYPES, AttrValue, Value
from perfc.ir.dims import Dim, product
from perfc.ir.ops.reduction import reduced_axes
from perfc.ir.ops.rules import normalize_axis
from perfc.passes.autodiff.reverse_mode import Gradients, Rule, Site
from perfc.passes.graphs import (
    typed,
)

_WINDOW = ("stride", "padding", "dilation", "auto_pad")


def _reduce(site: Site) -> Gradients | None:
    """Repeat the gradient along the axes that are gone, and scale it."""
    kind = site.node.attributes.text("kind")
    rule = _REDUCTIONS.get(kind)
    axes = _axes(site)
    if rule is None or axes is None:
        return None
    return {0: rule(_Reduction(site, axes))}


@attrs.frozen(eq=False)
class _Reduction:
    """A `reduce`, and the axes that it removes."""

    site: Site
    axes: tuple[int, ...]

    @property
    def grad(self) -> Value:
        """The gradient, with axes of size 1 where they were removed."""
        return self.kept(self.site.grad)

    @property
    def out(self) -> Value:
        """The result, in the same way."""
        return self.kept(self.site.out)

    @property
    def count(self) -> Dim:
        """How many elements became one."""
        shape = typed(self.site.x).shape
        count: Dim = product(shape[axis] for axis in self.axes)
        return count

    def wide(self, x: Value) -> Value:
        """Repeat *x* along the axes that were removed."""
        shape = typed(self.site.x).shape
        if typed(x).shape == shape:
            return x
        return self.site.op("expand", x, self.site.tape.integers(*shape))

    def counted(self, flags: Value) -> Value:
        """Count the flags that became one."""
        attributes: dict[str, AttrValue] = {"axes": self.axes, "keepdims": True}
        dtype = DTYPES["i64"]
        return self.site.op("reduce", flags, kind="sum", dtype=dtype, **attributes)

    def kept(self, x: Value) -> Value:
        """Keep the axes that were removed, of size 1; a number for all needs none."""
        if typed(x).rank == 0:
            return x
        if typed(x).rank == typed(self.site.x).rank:
            return x
        return self.site.op("unsqueeze", x, axes=self.axes)


def _axes(site: Site) -> tuple[int, ...] | None:
    rank = typed(site.x).rank
    if len(site.node.operands) == 1:
        return reduced_axes(site.node.attributes, rank)
    elements = site.tape.inference.elements.get(site.y)
    if elements is None:
        return None
    return tuple(normalize_axis(a, rank) for a in elements if isinstance(a, int))


def _sum(reduction: _Reduction) -> Value:
    return reduction.wide(reduction.grad)


def _mean(reduction: _Reduction) -> Value:
    """Divide by how many there are: a number, unknown where a size is a symbol."""
    count = reduction.count
    number = float(count) if isinstance(count, int) else 1.0
    return reduction.site.by("div", reduction.wide(reduction.grad), number)


def _largest(reduction: _Reduction) -> Value:
    """Share it among all that are as large: `evenly_distribute_backward`.

    Where their places are known it goes back to those.
    """
    places = reduction.site.node.results[1:]
    if places:
        return _put_back(reduction, reduction.kept(places[0]))
    site, grad = reduction.site, reduction.grad
    mask = site.op("equal", reduction.out, site.x)
    return site.op("mul", site.op("div", grad, reduction.counted(mask)), mask)


def _put_back(reduction: _Reduction, places: Value) -> Value:
    """`value_selecting_reduction_backward`."""
    site, (axis, *_) = reduction.site, reduction.axes
    zeros = site.tape.full(typed(site.x), 0.0)
    return site.op("scatter_elements", zeros, places, reduction.grad, axis=axis)


def _l1(reduction: _Reduction) -> Value:
    site = reduction.site
    return site.op("mul", site.op("sign", site.x), reduction.grad)


def _l2(reduction: _Reduction) -> Value:
    """Divide by the norm; where that is 0, nothing."""
    site, out = reduction.site, reduction.out
    rate = _nothing_at_zero(site, site.op("div", reduction.grad, out), out)
    return site.op("mul", site.x, rate)


def _nothing_at_zero(site: Site, rate: Value, below: Value) -> Value:
    """Replace what was divided by 0."""
    none, zero = site.by("equal", below, 0.0), site.tape.number(rate, 0.0)
    return site.op("masked_fill", rate, none, zero, in_place=True)


def _var(reduction: _Reduction) -> Value:
    return _of_deviation(reduction, reduction.grad)


def _std(reduction: _Reduction) -> Value:
    site, out = reduction.site, reduction.out
    rate = site.op("div", reduction.grad, site.by("mul", out, 2.0))
    return _of_deviation(reduction, _nothing_at_zero(site, rate, out))


def _of_deviation(reduction: _Reduction, grad: Value) -> Value:
    """`var_backward`: twice the deviation, by how many there are but one."""
    site, count = reduction.site, reduction.count
    number = 2.0 / (count - 1) if isinstance(count, int) and count > 1 else 2.0
    mean = site.op("reduce", site.x, kind="mean", axes=reduction.axes, keepdims=True)
    centred = site.op("sub", site.x, mean)
    return site.op("mul", site.by("mul", grad, number), centred)


def _sum_square(reduction: _Reduction) -> Value:
    site = reduction.site
    return site.op("mul", reduction.grad, site.by("mul", site.x, 2.0))


def _log_sum(reduction: _Reduction) -> Value:
    site = reduction.site
    rate = site.op("div", reduction.grad, site.op("exp", reduction.out))
    return reduction.wide(rate)


def _log_sum_exp(reduction: _Reduction) -> Value:
    site = reduction.site
    power = site.op("exp", site.op("sub", site.x, reduction.out))
    return site.op("mul", reduction.grad, power)


def _prod(reduction: _Reduction) -> Value:
    """`prod_backward`: where no factor is 0, which the host reads back."""
    site = reduction.site
    zeros = reduction.counted(site.by("equal", site.x, 0.0))
    site.tape.effect(
        "item", (site.op("reduce", zeros, kind="sum"),), f"{site.out.name}.zeros"
    )
    return site.op("mul", reduction.grad, site.op("div", reduction.out, site.x))


_REDUCTIONS: Mapping[str, Callable[[_Reduction], Value]] = {
    "sum": _sum,
    "mean": _mean,
    "prod": _prod,
    "var": _var,
    "std": _std,
    "max": _largest,
    "min": _largest,
    "l1": _l1,
    "l2": _l2,
    "sum_square": _sum_square,
    "log_sum": _log_sum,
    "log_sum_exp": _log_sum_exp,
}


def _cumsum(site: Site) -> Gradients:
    reverse = not site.node.attributes.flag("reverse")
    kept = site.kept("axis", "exclusive")
    axis = site.node.operands[1:]
    return {0: site.op("cumsum", site.grad, *axis, reverse=reverse, **kept)}


def _cumprod(site: Site) -> Gradients:
    """`cumprod_backward`: where no element is 0, which the host reads back."""
    axis = site.node.attributes.integer("axis")
    rates = site.op("mul", site.out, site.grad)
    zeros = site.by("equal", site.x, 0.0)
    site.tape.effect(
        "item", (site.op("reduce", zeros, kind="any"),), f"{site.out.name}.zeros"
    )
    sums = site.op("cumsum", rates, axis=axis, reverse=True)
    return {0: site.op("div", sums, site.x)}


def _det(site: Site) -> Gradients:
    """`linalg_det_backward`: one solve by the factors that forward has kept."""
    return {0: site.op("det_backward", site.grad, site.x, site.out)}


def _resize(site: Site) -> Gradients:
    kept, shape = site.kept("mode"), typed(site.x).shape
    return {0: site.op("resize_backward", site.grad, shape=shape, **kept)}


def _grid_sample(site: Site) -> Gradients:
    names = _wants(site, {0: "x", 1: "grid"})
    return _several(site, (site.grad, site.x, site.y), names, "mode")


def _along_axis(site: Site) -> Gradients:
    axis = site.node.attributes.integer("axis")
    op, own = f"{site.node.op}_backward", typed(site.x).dtype
    widened = typed(site.out).dtype != own  # the kernel narrows what it writes again
    dtype: dict[str, AttrValue] = {"dtype": own} if widened else {}
    return {0: site.op(op, site.grad, site.out, axis=axis, **dtype)}


def _wants(site: Site, names: Mapping[int, str]) -> dict[int, str]:
    return {index: name for index, name in names.items() if index in site.wanted}


def _several(
    site: Site, operands: tuple[Value, ...], wants: Mapping[int, str], *kept: str
) -> Gradients:
    """Apply a backward op that computes several gradients at once."""
    attributes: dict[str, AttrValue] = {"wants": tuple(wants.values())}
    attributes |= site.kept(*kept)
    op = f"{site.node.op}_backward"
    found = site.tape.ops(op, len(wants), *operands, **attributes)
    return dict(zip(wants, found, strict=True))


def _norm(site: Site) -> Gradients:
    wants = _wants(site, {0: "x", 1: "weight", 2: "bias"})
    weight = site.node.operands[1:2]
    operands = (site.grad, site.x, *weight)
    return _several(site, operands, wants, "axis", "groups", "training")


def _weight_norm(site: Site) -> Gradients:
    wants = _wants(site, {0: "x", 1: "weight"})
    norms = site.node.results[1]
    return _several(site, (site.grad, site.x, site.y, norms), wants, "axis")


def _distances(site: Site) -> Gradients:
    """Return gradients of distances between two sets.

    That of the second is by the distances the other way round, made contiguous.
    """
    op, kept = "distances_backward", site.kept("order")
    operands = site.node.operands
    found = {0: site.op(op, site.grad, *operands, site.out, **kept)}
    if 1 in site.wanted:
        rank = typed(site.out).rank
        turn = (*range(rank - 2), rank - 1, rank - 2)
        grad, out = (site.op("transpose", x, perm=turn) for x in (site.grad, site.out))
        found[1] = site.op(op, grad, *reversed(operands), out, **kept)
    return found


def _conv(site: Site, *, transposed: bool = False) -> Gradients:
    """`convolution_backward`: the three at once."""
    wants = _wants(site, {0: "x", 1: "weight", 2: "bias"})
    attributes: dict[str, AttrValue] = {"wants": tuple(wants.values())}
    attributes |= site.kept(*_WINDOW, "groups", "output_padding")
    if transposed:
        attributes["transposed"] = True
    operands = (site.grad, site.x, site.y)
    found = site.tape.ops("conv_backward", len(wants), *operands, **attributes)
    return dict(zip(wants, found, strict=True))


def _conv_tbc(site: Site) -> Gradients:
    wants = _wants(site, {0: "x", 1: "weight", 2: "bias"})
    return _several(site, (site.grad, site.x, site.y), wants, "padding")


def _pool(site: Site) -> Gradients:
    """A maximum goes back to its place, which the forward pass has kept."""
    places = site.node.results[1:2]
    kept = site.kept(*_WINDOW, "kind", "window", "ceil_mode")
    return {0: site.op("pool_backward", site.grad, site.x, *places, **kept)}


def _attention(site: Site) -> Gradients:
    q, k, v, *masks = site.node.operands
    names = {0: "q", 1: "k", 2: "v", **({3: "mask"} if masks else {})}
    operands = (site.grad, q, k, v, site.out, *masks)
    return _several(
        site, operands, _wants(site, names), "causal", "scale", "mask_hides"
    )


def _rotary(site: Site) -> Gradients:
    """Turn back: by the angles' negatives."""
    cos, sin = site.node.operands[1:]
    back = site.op("neg", sin)
    kept = site.kept("interleaved", "width")
    return {0: site.op("rotary", site.grad, cos, back, **kept)}


def _recurrent(site: Site) -> Gradients:
    given = site.node.operands[:4]
    names = {0: "x", 1: "weight", 2: "recurrence", 3: "bias"}
    if site.node.attributes.flag("projected"):
        given = site.node.operands
        names[len(given) - 1] = "projection"
    keeps = site.node.attributes.integer("reserve", 0)
    reserve = site.node.results[-1:] if keeps else ()
    kept = ("kind", "batch_first", "projected")
    return _several(site, (site.grad, *given, *reserve), _wants(site, names), *kept)


def _recurrent_cell(site: Site) -> Gradients:
    """`_thnn_fused_lstm_cell_backward` and that of a GRU: the kernel, then the sums.

    The two GEMMs of an LSTM are added up, and so have one gradient.
    """
    kind = site.node.attributes.text("kind")
    is_lstm = kind == "lstm"
    state, workspace = site.node.operands[2], site.node.results[-1]
    sent = [grad for grad in site.grads[: 1 + is_lstm] if grad is not None]
    saved = (state, site.node.results[1], workspace) if is_lstm else (workspace,)
    count = 2 if is_lstm else 3
    made = site.tape.ops("recurrent_cell_backward", count, *sent, *saved, kind=kind)
    gates = (made[0],) * 2 if is_lstm else made[:2]
    found = {0: gates[0], 1: gates[1], 2: made[-1]}
    if len(site.node.operands) > _GATES_AND_STATE:
        first = site.op("reduce", gates[0], kind="sum", axes=(0,))
        other = first
        if not is_lstm:
            other = site.op("reduce", gates[1], kind="sum", axes=(0,))
        found |= {3: first, 4: other}
    return found


_GATES_AND_STATE = 3
"""Operands of a cell without biases."""

RULES: Mapping[str, Rule] = {
    "reduce": _reduce,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
    "det": _det,
    "resize": _resize,
    "grid_sample": _grid_sample,
    **dict.fromkeys(("softmax", "log_softmax"), _along_axis),
    **dict.fromkeys(("layer_norm", "rms_norm", "group_norm", "batch_norm"), _norm),
    "conv_tbc": _conv_tbc,
    "weight_norm": _weight_norm,
    "distances": _distances,
    "conv": _conv,
    "conv_transpose": partial(_conv, transposed=True),
    "pool": _pool,
    "attention": _attention,
    "rotary": _rotary,
    "recurrent": _recurrent,
    "recurrent_cell": _recurrent_cell,
}
"""Rules of these ops by name."""
