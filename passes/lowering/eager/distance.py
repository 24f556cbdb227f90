"""Distances of all pairs in eager PyTorch: `cuda/DistanceKernel.cu` of ATen.

One block of 256 threads works out one distance. Their gradients are written pair by
pair into a buffer, which a second kernel adds up. Distances of more than 25 rows from
others, by the square root of a matmul, are no op of their own: they are recorded as
the calls that `cdist` makes.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import AttrValue, Work
from perfc.passes.lowering.eager.site import (
    BYTE,
    Eager,
    Rule,
    Site,
    made_contiguous,
    scratch,
    vector_launch,
)

_ONE_SET = 3
"""Operands of the gradient of distances within one set."""


def _distances(site: Site) -> Eager:
    x = site.operands[0]
    params: dict[str, AttrValue] = {"rows": site.out.numel, "cols": x.shape[-1]}
    launch = vector_launch("distances", x.type.dtype, params, site.work)
    name = "_pdist_forward" if len(site.operands) == 1 else "_cdist_forward"
    return Eager(f"aten::{name}", (*made_contiguous(site.operands), launch))


def _distances_backward(site: Site) -> Eager:
    """Each row has a gradient from every other one, or from every row of y."""
    grad, x, *others = site.operands
    within = len(site.operands) == _ONE_SET
    partners = max(x.shape[-2] - 1, 0) if within else others[0].shape[-2]
    dtype = x.type.dtype
    partial = partners * x.numel * dtype.bits // BYTE
    work = site.work
    params: dict[str, AttrValue] = {
        "rows": grad.numel,
        "cols": x.shape[-1],
        "kind": "backward",
    }
    pairs = vector_launch(
        "distances", dtype, params, Work(work.flops, work.bytes_read, partial)
    )
    added = vector_launch(
        "reduction",
        dtype,
        {"rows": x.numel, "cols": partners, "kind": "sum"},
        Work(partners * x.numel, partial, x.nbytes),
    )
    name = "_pdist_backward" if within else "_cdist_backward"
    copies = made_contiguous(site.operands)
    return Eager(f"aten::{name}", (*copies, scratch(pairs), added))


RULES: Mapping[str, Rule] = {
    "distances": _distances,
    "distances_backward": _distances_backward,
}
"""Rules of distances, by op name."""
