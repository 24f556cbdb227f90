"""Elementwise ops, and batch norm, in eager PyTorch.

Each is one kernel. The kernels that walk rows read contiguous tensors only; the
others take any strides.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import AttrValue
from perfc.ir.ops.activation import ACTIVATIONS
from perfc.ir.ops.elementwise import ELEMENTWISE_OPS
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Layout,
    Rule,
    Site,
    dense,
    elementwise_launch,
    made_contiguous,
    vector_launch,
)

_ATEN_NAMES = {
    "clip": "aten::clamp",
    "not": "aten::logical_not",
    "and": "aten::logical_and",
    "or": "aten::logical_or",
    "equal": "aten::eq",
    "not_equal": "aten::ne",
    "less": "aten::lt",
    "less_equal": "aten::le",
    "greater": "aten::gt",
    "greater_equal": "aten::ge",
    "xor": "aten::logical_xor",
    "mod": "aten::remainder",
    "square": "aten::pow",
    "shrink": "aten::softshrink",
    "i0e": "aten::special_i0e",
    "thresholded_relu": "aten::threshold",
    "bit_shift": "aten::bitwise_left_shift",
}
"""PyTorch's names of ops where they are not `aten::` and the op's."""

_STEPS: Mapping[str, tuple[str, ...]] = {
    "isinf": ("abs", "eq"),
    "isfinite": ("eq", "abs", "ne", "mul"),
    "softsign": ("abs", "add", "div"),
}
"""Elementwise ops that PyTorch writes as others, a kernel each."""


def _in_steps(site: Site) -> Eager:
    """Each step reads and writes what the op does; the last may be narrower."""
    x = site.operands[0]
    steps = _STEPS[site.op]
    flops = site.work.flops // len(steps)
    launches = [elementwise_launch(kind, (x,), x, flops) for kind in steps[:-1]]
    launches.append(elementwise_launch(steps[-1], (x,), site.out, flops))
    return Eager(f"aten::{site.op}", tuple(launches))


def _elementwise(site: Site) -> Eager:
    name = _ATEN_NAMES.get(site.op, f"aten::{site.op}")
    if site.attributes.flag("hard"):
        name = "aten::hardshrink"
    name += "_" * site.attributes.flag("in_place")
    launch = elementwise_launch(site.op, site.operands, site.out, site.work.flops)
    return Eager(name, (launch,), (kept_layout(site),))


def kept_layout(site: Site) -> Layout:
    """Return the layout of the result.

    PyTorch keeps the permutation of the first full-size input (`reorder_dimensions` in
    `TensorIterator.cpp`): where axes are broadcast, an input has no say.
    """
    numel = site.out.numel
    full = (t.layout for t in site.operands if t.numel == numel)
    return dense(next(full, Layout.CONTIGUOUS))


def _activation(site: Site) -> Eager:
    if "spelled_out" in site.attributes:
        from perfc.passes.lowering.eager.spelled_out import calls_of, spelled_out  # noqa: PLC0415 - lazy

        if calls_of(site):
            return spelled_out(site, {"x": site.operands[0]})
    return _elementwise(site)


def _glu(site: Site) -> Eager:
    """One kernel reads both halves."""
    launch = elementwise_launch("glu", site.operands, site.out, site.work.flops)
    return Eager("aten::glu", (launch,))


def over_rows(
    site: Site, op: str, rows: int, columns: int, **extra: AttrValue
) -> Launch:
    """Launch one kernel that walks the rows of operand 0."""
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns, **extra}
    return vector_launch(op, site.operands[0].type.dtype, params, site.work)


def _batch_norm(site: Site) -> Eager:
    x = site.operands[0]
    columns = x.shape[1]
    rows = x.numel // columns if columns else 0
    training: dict[str, AttrValue] = {}
    if site.attributes.flag("training"):
        training["kind"] = "training"
    launch = over_rows(site, "batch_norm", rows, columns, **training)
    return Eager("aten::batch_norm", (*made_contiguous((x,)), launch))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE_OPS, _elementwise),
    **dict.fromkeys(_STEPS, _in_steps),
    **dict.fromkeys(ACTIVATIONS, _activation),
    "glu": _glu,
    "batch_norm": _batch_norm,
}
"""Rules of the elementwise ops and of those that walk rows, by op name."""
