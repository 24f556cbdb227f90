"""Allocated, overwritten, moved and sorted tensors in eager PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.passes.lowering.eager.movement import same_copy_launch
from perfc.passes.lowering.eager.reductions import kernel_launch, sort_rows
from perfc.passes.lowering.eager.site import (
    Eager,
    Layout,
    Rule,
    Site,
    copy_launch,
    dense,
    elementwise_launch,
    made_contiguous,
)


def _alias(site: Site) -> Eager:
    return Eager(site.attributes.text("call"), (), (site.operands[0].layout,))


def _view(site: Site) -> Eager:
    contiguous = site.attributes.flag("contiguous")
    layout = Layout.CONTIGUOUS if contiguous else Layout.STRIDED
    return Eager(site.attributes.text("call"), (), (layout,))


def _empty(site: Site) -> Eager:
    return Eager("aten::empty")


def _host(site: Site) -> Eager:
    return Eager(site.attributes.text("op"))


def _overwrite(site: Site) -> Eager:
    layout = dense(site.operands[0].layout)
    name = "aten::zero_" if site.attributes.get("value") == 0.0 else "aten::fill_"
    return Eager(name, (elementwise_launch("fill", (), site.out),), (layout,))


def _assign(site: Site) -> Eager:
    """One kernel, which converts, broadcasts and takes any strides; or a plain copy."""
    x, source = site.operands
    alike = source.layout is x.layout
    if alike and source.type == x.type and x.layout is not Layout.STRIDED:
        launch = same_copy_launch(site, x)
    elif alike:
        launch = elementwise_launch("copy", (source,), site.out)
    else:
        launch = copy_launch(source, site.out)
    return Eager("aten::copy_", (launch,), (x.layout,))


def _masked_fill(site: Site) -> Eager:
    """Out of place the tensor is copied first."""
    x, mask, _ = site.operands
    launch = elementwise_launch("masked_fill", (x, mask), site.out, site.work.flops)
    layouts = (dense(x.layout),)
    if site.attributes.flag("in_place"):
        return Eager("aten::masked_fill_", (launch,), layouts)
    copied = elementwise_launch("copy", (x,), site.out)
    return Eager("aten::masked_fill", (copied, launch), layouts)


def _rearrange(site: Site) -> Eager:
    name = f"aten::{site.attributes.text('kind')}"
    return Eager(name, (elementwise_launch("copy", site.operands, site.out),))


def _sort(site: Site) -> Eager:
    x = site.operands[0]
    launches = sort_rows(x, site.attributes.integer("axis"))
    return Eager("aten::sort", (*made_contiguous((x,)), *launches))


def _resize_backward(site: Site) -> Eager:
    """Zeros, then each gradient added to its sources."""
    zeros = elementwise_launch("fill", (), site.out)
    added = kernel_launch(site, "resize", kind=site.attributes.text("mode"))
    return Eager("aten::upsample_backward", (zeros, added))


RULES: Mapping[str, Rule] = {
    "alias": _alias,
    "replicated": lambda site: Eager("aten::view_as"),
    "split_cross_entropy": lambda site: Eager("aten::view_as"),
    "view": _view,
    "empty": _empty,
    "host": _host,
    "overwrite": _overwrite,
    "assign": _assign,
    "masked_fill": _masked_fill,
    "rearrange": _rearrange,
    "sort": _sort,
    "resize_backward": _resize_backward,
}
"""Rules by op name."""
