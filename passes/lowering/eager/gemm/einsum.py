"""Einstein sums in eager PyTorch: a batched GEMM for each pair of operands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from perfc.ir import AttrValue, TensorType
from perfc.ir.dims import Dim
from perfc.ir.ops.einsum import einsum_labels, einsum_pairs, einsum_sizes
from perfc.passes.lowering.eager.gemm.matmul import gemm_launch
from perfc.passes.lowering.eager.site import (
    Eager,
    Launch,
    Rule,
    Site,
    Tensor,
    copy_launch,
    elementwise_launch,
    scratch,
    vector_launch,
)

Labels = tuple[str, ...]


def _einsum(site: Site) -> Eager:
    """Left to right: what no later term reads is summed, at once where it can be.

    `sumproduct_pair` of ATen permutes both operands to [batch, kept, summed],
    which copies where they do not lie so, and calls `bmm`.
    """
    labels, result = einsum_labels(
        site.attributes.text("equation"), [x.type.rank for x in site.operands]
    )
    sizes = einsum_sizes(labels, [x.shape for x in site.operands])
    numbers = cast("dict[str, int]", sizes)
    if len(labels) == 1:
        return Eager("aten::einsum", _alone(site, labels[0], result))
    launches: list[Launch] = []
    for left, right, kept in einsum_pairs(labels, result):
        launches += _pair(site, left, right, set(kept), numbers)
    return Eager("aten::einsum", tuple(launches))


def _alone(site: Site, labels: Labels, result: Labels) -> tuple[Launch, ...]:
    """A permutation is a view; axes that are left out are summed."""
    if set(labels) == set(result):
        return ()
    x, out = site.operands[0], site.out
    columns = x.numel // max(1, out.numel)
    params: dict[str, AttrValue] = {"rows": out.numel, "cols": columns, "kind": "sum"}
    return (vector_launch("reduction", x.type.dtype, params, site.work),)


def _pair(
    site: Site, left: Labels, right: Labels, kept: set[str], sizes: Mapping[str, int]
) -> list[Launch]:
    both = [name for name in left if name in right]
    batch = [name for name in both if name in kept]
    summed = [name for name in both if name not in kept]
    rows = [name for name in left if name not in right]
    columns = [name for name in right if name not in left]
    if not summed and not set(rows + columns) - kept:
        # The launch of an einsum without a sum: a product of broadcast views.
        joined = tuple(dict.fromkeys((*left, *right)))
        inputs = (_tensor(site, left, sizes), _tensor(site, right, sizes))
        out = _tensor(site, joined, sizes)
        elementwise = elementwise_launch("mul", inputs, out, out.numel)
        return [elementwise]
    launches = _ordered(site, left, (batch, rows, summed), sizes)
    launches += _ordered(site, right, (batch, columns, summed), sizes)
    b, m, n, k = (_size(names, sizes) for names in (batch, rows, columns, summed))
    return [*launches, gemm_launch(site, (b, m, n, k), "nt")]


def _size(names: Sequence[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[name] for name in names)


def _tensor(site: Site, names: Sequence[str], sizes: Mapping[str, int]) -> Tensor:
    shape: tuple[Dim, ...] = tuple(sizes[name] for name in names)
    return Tensor(TensorType(site.out.type.dtype, shape))


def _ordered(
    site: Site,
    labels: Labels,
    groups: tuple[list[str], list[str], list[str]],
    sizes: Mapping[str, int],
) -> list[Launch]:
    """Copy an operand unless its axes lie batch, then kept and summed either way."""
    batch, kept, summed = groups
    orders = ([*batch, *kept, *summed], [*batch, *summed, *kept])
    large = [name for name in labels if sizes[name] != 1]
    if any(large == [n for n in order if sizes[n] != 1] for order in orders):
        return []
    return [scratch(copy_launch(_tensor(site, labels, sizes)))]


RULES: Mapping[str, Rule] = {"einsum": _einsum}
"""The rule of `einsum`."""
