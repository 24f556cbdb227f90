"""Elementwise ops, reductions and normalisations in eager PyTorch.

Each is one kernel. The kernels that walk rows read contiguous tensors only; the
others take any strides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfc.ir import ELEMENTWISE_OPS, AttrValue, reduced_axes
from perfc.passes.eager import (
    Eager,
    Launch,
    Layout,
    Rule,
    Site,
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
    "less": "aten::lt",
    "greater": "aten::gt",
    "mod": "aten::remainder",
}
"""Where PyTorch's name is not `aten::` and the op's."""

_REDUCTIONS = {"max": "aten::amax", "min": "aten::amin"}


def _elementwise(site: Site) -> Eager:
    name = _ATEN_NAMES.get(site.op, f"aten::{site.op}")
    launch = elementwise_launch(site.op, site.operands, site.out, site.work.flops)
    return Eager(name, (launch,), (_kept_layout(site),))


def _kept_layout(site: Site) -> Layout:
    """Return the layout of the result.

    PyTorch keeps a permutation that all full-size inputs share.
    """
    numel = site.out.numel
    full = [t.layout for t in site.operands if t.numel == numel]
    transposed = full and all(layout is Layout.TRANSPOSED for layout in full)
    return Layout.TRANSPOSED if transposed else Layout.CONTIGUOUS


def _over_rows(
    site: Site, op: str, rows: int, columns: int, **extra: AttrValue
) -> Launch:
    params: dict[str, AttrValue] = {"rows": rows, "cols": columns, **extra}
    return vector_launch(op, site.operands[0].type.dtype, params, site.work)


def _reduce(site: Site) -> Eager:
    x = site.operands[0]
    axes = reduced_axes(site.attributes, x.type.rank)
    columns = math.prod(x.shape[axis] for axis in axes)
    rows = math.prod(n for axis, n in enumerate(x.shape) if axis not in axes)
    kind = site.attributes.text("kind")
    name = _REDUCTIONS.get(kind, f"aten::{kind}")
    return Eager(name, (_over_rows(site, "reduction", rows, columns, kind=kind),))


def _softmax(site: Site) -> Eager:
    x = site.operands[0]
    columns = x.shape[site.attributes.integer("axis")]
    rows = x.numel // columns if columns else 0
    launches = (*made_contiguous((x,)), _over_rows(site, "softmax", rows, columns))
    return Eager("aten::softmax", launches)


def _layer_norm(site: Site) -> Eager:
    x = site.operands[0]
    axis = site.attributes.integer("axis")
    columns = math.prod(x.shape[axis:])
    rows = math.prod(x.shape[:axis])
    launches = (*made_contiguous((x,)), _over_rows(site, "layer_norm", rows, columns))
    return Eager("aten::layer_norm", launches)


def _batch_norm(site: Site) -> Eager:
    x = site.operands[0]
    columns = x.shape[1]
    rows = x.numel // columns if columns else 0
    launches = (*made_contiguous((x,)), _over_rows(site, "batch_norm", rows, columns))
    return Eager("aten::batch_norm", launches)


def _pool(site: Site) -> Eager:
    x = site.operands[0]
    window = site.attributes.integers("window")
    kind = "max" if site.attributes.text("kind") == "max" else "avg"
    out = site.out.shape
    params: dict[str, AttrValue] = {
        "kind": kind,
        "rows": math.prod(out[:2]),
        "cols": math.prod(out[2:]),
        "window": window,
    }
    pool = vector_launch("pool", x.type.dtype, params, site.work)
    name = f"aten::{kind}_pool{len(window)}d"
    return Eager(name, (*made_contiguous((x,)), pool))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE_OPS, _elementwise),
    "reduce": _reduce,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "pool": _pool,
}
"""Rules of the elementwise ops and of those that walk rows, by op name."""
