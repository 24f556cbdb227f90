"""Gradients of ops that move, join, cut and pick elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir import DTYPES, Value, node_kinds
from perfc.ir.dims import Dim, product
from perfc.passes.autodiff.lookup import embedding
from perfc.passes.autodiff.reverse_mode import Gradients, Rule, Site
from perfc.passes.graphs import (
    typed,
)

_TABLE_RANK = 2

_TOGETHER = frozenset(("reshape", "split", "all_gather", "replicated"))
"""Ops that parameters go through which ranks share."""


def _reshape(site: Site) -> Gradients:
    return {0: site.tape.reshape(site.grad, *typed(site.x).shape)}


def _transpose(site: Site) -> Gradients:
    perm = site.node.attributes.integers("perm")
    inverse = tuple(perm.index(axis) for axis in range(len(perm)))
    return {0: site.op("transpose", site.grad, perm=inverse)}


def _expand(site: Site) -> Gradients:
    """Hand the gradient on: what was broadcast is added up for every op."""
    return {0: site.grad}


def _concat(site: Site) -> Gradients:
    """View the piece of each operand; a copy is not made."""
    axis = site.node.attributes.integer("axis") % typed(site.out).rank
    found: dict[int, Value] = {}
    start: Dim = 0
    for index, operand in enumerate(site.node.operands):
        end = start + typed(operand).shape[axis]
        if index in site.wanted:
            found[index] = site.tape.cut(site.grad, (start, end), axis)
        start = end
    return found


def _split(site: Site) -> Gradients:
    """Join the gradients of the pieces; zeros of those that nobody reads."""
    axis = site.node.attributes.integer("axis")
    pieces = [site.grad_of(index) for index in range(len(site.node.results))]
    return {0: site.op("concat", *pieces, axis=axis)}


def _slice(site: Site) -> Gradients:
    """`slice_backward`, once for each axis, as slices are taken one by one."""
    elements = site.tape.inference.elements
    axes = elements.get(site.node.operands[3]) if len(site.node.operands) > 3 else None
    cut = _changed(site.x, site.out) if axes is None else axes
    shape = list(typed(site.out).shape)
    rank, grad = len(shape), site.grad
    for axis in reversed([a % rank for a in cut if isinstance(a, int)]):
        if shape[axis] == typed(site.x).shape[axis]:
            continue
        shape[axis] = typed(site.x).shape[axis]
        grad = site.op("slice_backward", grad, shape=tuple(shape), axes=(axis,))
    return {0: grad}


def _changed(x: Value, y: Value) -> tuple[int, ...]:
    pairs = zip(typed(x).shape, typed(y).shape, strict=True)
    return tuple(axis for axis, (left, right) in enumerate(pairs) if left != right)


def _trilu(site: Site) -> Gradients:
    diagonal = site.node.operands[1:]
    return {0: site.op("trilu", site.grad, *diagonal, **site.kept("upper"))}


def _pad(site: Site) -> Gradients:
    """Cut the borders off, by a pad of negative sizes; copies are added to sources."""
    mode = site.node.attributes.text("mode", "constant")
    if mode != "constant":
        shape = typed(site.x).shape
        return {0: site.op("pad_backward", site.grad, mode=mode, shape=shape)}
    pads = site.tape.inference.elements.get(site.y)
    if pads is None:
        return {0: _zeros(site)}
    negative = site.tape.integers(*(-size for size in pads))
    axes = site.node.operands[2:]
    return {0: site.op("pad", site.grad, negative, *axes)}


def _tile(site: Site) -> Gradients:
    """Add up the copies: an axis of them in front of every axis."""
    apart: list[Dim] = []
    for dim, wide in zip(typed(site.x).shape, typed(site.out).shape, strict=True):
        apart += [wide // dim, dim]
    axes = tuple(range(0, len(apart), 2))
    grad = site.tape.reshape(site.grad, *apart)
    return {0: site.op("reduce", grad, kind="sum", axes=axes)}


def _zeros(site: Site) -> Value:
    return site.tape.full(typed(site.x), 0.0)


def _gather(site: Site) -> Gradients:
    """Look rows of a table up: `embedding_dense_backward`; else add slices up.

    One index is a `select`, whose gradient is put into zeros.
    """
    axis = site.node.attributes.integer("axis") % typed(site.x).rank
    table, indices = typed(site.x), typed(site.y)
    if indices.rank == 0:
        back = site.op("slice_backward", site.grad, shape=table.shape, axes=(axis,))
        return {0: back}
    if axis == 0 and table.rank == _TABLE_RANK and _is_parameter(site.x):
        return embedding(site)
    atomic = site.node.attributes.flag("atomic")
    return {0: _added(site, axis, _tuples(site, site.y), atomic=atomic)}


def _is_parameter(value: Value) -> bool:
    """Whether a tensor is a parameter, or a part of parameters that lie together.

    What is gathered may have been cast first.
    """
    gathered = False
    while (node := value.producer) is not None:
        if node.op not in _TOGETHER and not (gathered and node_kinds.is_cast(node)):
            return False
        gathered |= node_kinds.is_all_gather(node)
        value = node.operands[0]
    return True


def _tuples(site: Site, indices: Value) -> Value:
    """View indices as tuples of one."""
    return site.tape.reshape(indices, *typed(indices).shape, 1)


def _added(site: Site, axis: int, *indices: Value, atomic: bool = False) -> Value:
    """`index_put_(accumulate=True)` into zeros; `index_add_` if it is atomic."""
    more = {"atomic": True} if atomic else {}
    return site.op(
        "index_put",
        _zeros(site),
        site.grad,
        *indices,
        axis=axis,
        accumulate=True,
        in_place=True,
        **more,
    )


def _index(site: Site) -> Gradients:
    """Add at index tuples, or at a list of indices for each axis."""
    attributes = site.node.attributes
    if attributes.get("axes") is not None:
        first = attributes.integers("axes")[0]
        return {0: _added(site, first, *site.node.operands[1:])}
    axis = attributes.integer("axis") % typed(site.x).rank
    return {0: _added(site, axis, site.y)}


def _gather_nd(site: Site) -> Gradients:
    """Add at index tuples; batches are one more index each."""
    if site.node.attributes.integer("batch_dims", 0):
        return {0: _added(site, site.node.attributes.integer("batch_dims"), site.y)}
    return {0: _added(site, 0, site.y)}


def _gather_elements(site: Site) -> Gradients:
    axis = site.node.attributes.integer("axis")
    back = site.op(
        "scatter_elements",
        _zeros(site),
        site.y,
        site.grad,
        axis=axis,
        reduction="add",
    )
    return {0: back}


def _scatter(lookup: str) -> Rule:
    """The data loses what was written over; the updates get what is there."""

    def rule(site: Site) -> Gradients | None:
        reduction = site.node.attributes.get("reduction")
        if reduction not in (None, "add", "sum"):
            return None
        _, indices, updates = site.node.operands
        found = {0: site.grad}
        axis = site.kept("axis") or {"axis": 0}
        if 0 in site.wanted and reduction is None:
            zeros = site.tape.full(typed(updates), 0.0)
            if lookup == "index":
                found[0] = site.op("index_put", site.grad, zeros, indices, **axis)
            else:
                found[0] = site.op(site.node.op, site.grad, indices, zeros, **axis)
        if 2 in site.wanted:  # data, indices, updates
            found[2] = site.op(lookup, site.grad, indices, **axis)
        return found

    return rule


def _topk(site: Site) -> Gradients:
    """Put the gradients of the values where they came from."""
    axis = site.node.attributes.integer("axis")
    places = site.node.results[1]
    back = site.op("scatter_elements", _zeros(site), places, site.grad, axis=axis)
    return {0: back}


def _sort(site: Site) -> Gradients:
    """`value_selecting_reduction_backward`: back to the places they came from."""
    places = site.node.results[1:]
    if not places:
        return {0: _zeros(site)}
    axis = site.node.attributes.integer("axis")
    back = site.op("scatter_elements", _zeros(site), *places, site.grad, axis=axis)
    return {0: back}


def _stack(site: Site) -> Gradients:
    """View the piece of each operand."""
    axis = site.node.attributes.integer("axis") % typed(site.out).rank
    found: dict[int, Value] = {}
    for index in range(len(site.node.operands)):
        if index in site.wanted:
            piece = site.tape.cut(site.grad, (index, index + 1), axis)
            found[index] = site.op("squeeze", piece, axes=(axis,))
    return found


def _index_put(site: Site) -> Gradients | None:
    """`index_put` with zeros, and a lookup of the values."""
    _, values, *indices = site.node.operands
    kept = site.kept("axis")
    found = {0: site.grad}
    if 0 in site.wanted and not site.node.attributes.flag("accumulate"):
        zeros = site.tape.full(typed(values), 0.0)
        found[0] = site.op("index_put", site.grad, zeros, *indices, **kept)
    if 1 in site.wanted:
        if any(typed(index).dtype == DTYPES["bool"] for index in indices):
            return None
        found[1] = _looked_up(site, values, indices)
    return found


def _looked_up(site: Site, values: Value, indices: Sequence[Value]) -> Value:
    """Return gradients where values were put: at tuples, or at places on each axis."""
    axis = site.node.attributes.integer("axis", 0) % typed(site.x).rank
    if len(indices) > 1:
        axes = tuple(range(axis, axis + len(indices)))
        return site.op("index", site.grad, *indices, axes=axes)
    kind = "index" if _are_tuples(site, values, indices[0]) else "gather"
    return site.op(kind, site.grad, *indices, axis=axis)


def _are_tuples(site: Site, values: Value, indices: Value) -> bool:
    """Whether indices are tuples; ranks tell them from places on one axis."""
    shape, rank = typed(indices).shape, typed(site.x).rank
    depth = shape[-1] if shape else 0
    if not isinstance(depth, int) or not depth:
        return False
    return typed(values).rank == rank + len(shape) - 1 - depth


_INVERSES = {
    **{kind: kind for kind in ("flip", "roll", "rot90", "channel_shuffle")},
    "pixel_shuffle": "pixel_unshuffle",
    "pixel_unshuffle": "pixel_shuffle",
    "im2col": "col2im",
    "col2im": "im2col",
}


def _rearrange(site: Site) -> Gradients | None:
    """Copy back, where nothing is repeated or left out."""
    kind = _INVERSES.get(site.node.attributes.text("kind"))
    if kind is None:
        return None
    shape = typed(site.x).shape
    return {0: site.op("rearrange", site.grad, kind=kind, shape=shape)}


def _max_unpool(site: Site) -> Gradients:
    """Look the maxima's places up (`max_pool_double_backward`)."""
    flat: list[Value] = []
    for value in (site.grad, site.y):
        outer, inner = typed(value).shape[:2], typed(value).shape[2:]
        flat.append(site.tape.reshape(value, *outer, product(inner)))
    found = site.op("gather_elements", *flat, axis=2)
    return {0: site.tape.reshape(found, *typed(site.x).shape)}


def _overwrite(site: Site) -> Gradients:
    """Return zeros: nothing of what was there is left."""
    return {0: _zeros(site)}


def _assign(site: Site) -> Gradients:
    found = {1: site.grad}
    if 0 in site.wanted:
        found[0] = _zeros(site)
    return found


def _pixel_shuffle(site: Site) -> Gradients:
    attributes = site.node.attributes
    to_space = not attributes.flag("to_space")
    block = attributes.integer("block")
    return {0: site.op("pixel_shuffle", site.grad, block=block, to_space=to_space)}


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("reshape", "flatten", "squeeze", "unsqueeze"), _reshape),
    "alias": _reshape,
    "stack": _stack,
    "sort": _sort,
    "index_put": _index_put,
    "rearrange": _rearrange,
    "max_unpool": _max_unpool,
    "overwrite": _overwrite,
    "assign": _assign,
    "transpose": _transpose,
    "expand": _expand,
    "concat": _concat,
    "split": _split,
    "slice": _slice,
    "trilu": _trilu,
    "pad": _pad,
    "tile": _tile,
    "gather": _gather,
    "index": _index,
    "gather_nd": _gather_nd,
    "gather_elements": _gather_elements,
    "scatter_nd": _scatter("index"),
    "scatter_elements": _scatter("gather_elements"),
    "topk": _topk,
    "pixel_shuffle": _pixel_shuffle,
}
"""Rules of these ops by name."""
