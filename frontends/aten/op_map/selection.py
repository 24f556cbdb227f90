"""ATen ops that sort, select, repeat or shuffle elements."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.aten.node import AtenNode, Handler
from perfc.ir import AttrValue
from perfc.ir.dims import Expr


def _sort(node: AtenNode) -> None:
    attributes: dict[str, AttrValue] = {"axis": node.integer("dim", -1)}
    results = range(len(node.results))
    node.emit("sort", (node.tensor("self"),), attributes, results=results)


def _argsort(node: AtenNode) -> None:
    axis = node.integer("dim", -1)
    made = node.helper("sort", (node.tensor("self"),), {"axis": axis}, count=2)
    node.alias(0, made[1])


def _topk(node: AtenNode) -> None:
    x, axis = node.tensor("self"), node.integer("dim", -1)
    operands = (x, node.listed((node.dim("k"),)))
    node.emit("topk", operands, {"axis": axis}, results=(0, 1))


def _kthvalue(node: AtenNode) -> None:
    attributes: dict[str, AttrValue] = {
        "kind": "max",
        "axes": (node.integer("dim", -1),),
        "keepdims": node.flag("keepdim"),
    }
    node.emit("reduce", (node.tensor("self"),), attributes, results=(0, 1))


def _nonzero(node: AtenNode) -> None:
    type_ = node.result()
    places = attrs.evolve(type_, shape=type_.shape[::-1])
    (found,) = node.helper("nonzero", (node.tensor("self"),), types=(places,))
    node.emit("transpose", (found,), {"perm": (1, 0)})


def _unique(node: AtenNode) -> None:
    attributes: dict[str, AttrValue] = {}
    if node.is_given("dim"):
        attributes["axis"] = node.integer("dim")
    node.emit("unique", (node.tensor("self"),), attributes)


def _repeat(node: AtenNode) -> None:
    """Axes that are put in front are of size 1 first."""
    x = node.tensor("self")
    repeats = node.dims("repeats" if node.is_given("repeats") else "dims")
    added = len(repeats) - x.rank
    if added > 0:
        (x,) = node.helper("unsqueeze", (x,), {"axes": tuple(range(added))})
    elif added < 0:
        repeats = (1,) * -added + repeats
    node.emit("tile", (x, node.listed(repeats)))


def _repeat_interleave(node: AtenNode) -> None:
    """Emit a copy of a view if a number says how often; what a tensor says is data."""
    x, repeats = node.operands[0], node.arguments.get("repeats")
    if not isinstance(repeats, int | Expr):
        node.emit("rearrange", (x,), {"kind": node.name, "shape": node.result().shape})
        return
    if not node.is_given("dim"):
        (x,) = node.helper("reshape", (x, node.listed((-1,))), {"view": True})
    behind = node.integer("dim", 0) % x.rank + 1
    sizes = (*x.type.shape[:behind], repeats, *x.type.shape[behind:])
    (each,) = node.helper("unsqueeze", (x,), {"axes": (behind,)})
    (spread,) = node.helper("expand", (each, node.listed(sizes)))
    node.emit("reshape", (spread, node.listed(node.result().shape)))


def _shuffled(node: AtenNode) -> None:
    x = node.tensor("self")
    node.emit("rearrange", (x,), {"kind": node.name, "shape": node.result().shape})


def _triangle(*, upper: bool) -> Handler:
    def handler(node: AtenNode) -> None:
        node.emit("trilu", (node.tensor("self"),), {"upper": upper})

    return handler


def _one_hot(node: AtenNode) -> None:
    indices, out = node.tensor("self"), node.result()
    operands = (indices, node.listed((out.shape[-1],)), node.listed((0, 1)))
    node.emit("one_hot", operands, {"axis": -1})


def _multinomial(node: AtenNode) -> None:
    attributes: dict[str, AttrValue] = {
        "dtype": node.result().dtype,
        "samples": node.integer("num_samples"),
    }
    node.emit("multinomial", (node.tensor("self"),), attributes)


SELECTION_HANDLERS: Mapping[str, Handler] = {
    "aten.sort": _sort,
    "aten.msort": _sort,
    "aten.argsort": _argsort,
    "aten.topk": _topk,
    "aten.kthvalue": _kthvalue,
    "aten.nonzero": _nonzero,
    "aten._unique2": _unique,
    "aten.unique_dim": _unique,
    "aten.unique_consecutive": _unique,
    "aten.repeat": _repeat,
    "aten.tile": _repeat,
    "aten.repeat_interleave": _repeat_interleave,
    "aten.flip": _shuffled,
    "aten.roll": _shuffled,
    "aten.rot90": _shuffled,
    "aten.diag_embed": _shuffled,
    "aten.diag": _shuffled,
    "aten.channel_shuffle": _shuffled,
    "aten.pixel_shuffle": _shuffled,
    "aten.pixel_unshuffle": _shuffled,
    "aten.im2col": _shuffled,
    "aten.col2im": _shuffled,
    "aten.tril": _triangle(upper=False),
    "aten.triu": _triangle(upper=True),
    "aten.one_hot": _one_hot,
    "aten.multinomial": _multinomial,
}
"""ATen ops to the functions that write them."""
