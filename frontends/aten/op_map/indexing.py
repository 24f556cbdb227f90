"""ATen ops that gather and scatter elements, and the gradients of views."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import DTYPES, AttrValue, TensorType
from perfc.ir.dims import Dim


def _indices(node: AtenNode) -> tuple[tuple[int, ...], list[Operand]]:
    """Return the axes that are indexed, and by what; None leaves an axis alone."""
    given = node.arguments.get("indices")
    if not isinstance(given, tuple):
        msg = "no list of indices"
        raise Misfit(msg)
    pairs = [(i, x) for i, x in enumerate(given) if isinstance(x, Operand)]
    if not pairs or any(x is not None for x in given if not isinstance(x, Operand)):
        msg = "indices that are no tensors"
        raise Misfit(msg)
    return tuple(axis for axis, _ in pairs), [index for _, index in pairs]


def _is_mask(index: Operand) -> bool:
    return index.type.dtype.bits == 8  # bool, or uint8 as of old


def _index(node: AtenNode) -> None:
    x = node.tensor("self")
    axes, indices = _indices(node)
    if any(map(_is_mask, indices)):
        # A mask of one axis, or of all: how many elements are left depends on data.
        if len(indices) > 1 or indices[0].rank not in (1, x.rank):
            msg = "several masks, or a mask of some axes"
            raise Misfit(msg)
        whole = indices[0].rank == x.rank
        node.emit("compress", (x, *indices), {} if whole else {"axis": axes[0]})
    elif len(axes) == 1:
        node.emit("gather", (x, *indices), {"axis": axes[0]})
    else:
        node.emit("index", (x, *indices), {"axes": axes})


def _index_put(node: AtenNode) -> None:
    x, values = node.tensor("self"), node.tensor("values")
    axes, indices = _indices(node)
    masked = _is_mask(indices[0])
    if masked and len(indices) == 1 and values.type.numel == 1:
        node.emit("masked_fill", (x, *indices, values))
        return
    if masked:
        indices = [_places(node, indices[0], values), *indices[1:]]
    attributes: dict[str, AttrValue] = {
        "axis": axes[0],
        "accumulate": node.flag("accumulate"),
    }
    node.emit("index_put", (x, values, *indices), attributes)


def _places(node: AtenNode, mask: Operand, values: Operand) -> Operand:
    """Find where a mask holds: as often as there are values, or everywhere."""
    mask_rank, rank = mask.rank, node.tensor("self").rank
    found: Dim = mask.type.numel
    if values.rank > rank - mask_rank and values.type.shape[0] != 1:
        found = values.type.shape[0]
    else:
        node.assumption = "the mask is taken to hold everywhere"
    type_ = TensorType(DTYPES["i64"], (mask_rank, found))
    return node.helper("nonzero", (mask,), types=(type_,))[0]


def _index_along(*, accumulate: bool, values: str) -> Handler:
    """`index_add` and its like: whole slices at indices of one axis."""

    def handler(node: AtenNode) -> None:
        operands = (node.tensor("self"), node.value(values), node.tensor("index"))
        attributes: dict[str, AttrValue] = {
            "axis": node.integer("dim"),
            "accumulate": accumulate,
        }
        node.emit("index_put", operands, attributes)

    return handler


def _gather(op: str) -> Handler:
    def handler(node: AtenNode) -> None:
        index = "index" if node.is_given("index") else "indices"
        operands = (node.tensor("self"), node.tensor(index))
        node.emit(op, operands, {"axis": node.integer("dim")})

    return handler


def _take(node: AtenNode) -> None:
    x = node.tensor("self")
    (flat,) = node.helper("reshape", (x, node.listed((-1,))), {"view": True})
    node.emit("gather", (flat, node.tensor("index")), {"axis": 0})


def _scatter(node: AtenNode) -> None:
    values = "src" if node.is_given("src") else "value"
    operands = (node.tensor("self"), node.tensor("index"), node.value(values))
    attributes: dict[str, AttrValue] = {"axis": node.integer("dim")}
    adds = node.name.startswith("scatter_add")
    reduction = node.text("reduce", "sum" if adds else "")
    if reduction:
        attributes["reduction"] = reduction
    node.emit("scatter_elements", operands, attributes)


def _put_back(node: AtenNode) -> None:
    """`slice_scatter` and `select_scatter`: a copy, and a piece of it overwritten."""
    (copied,) = node.helper("alias", (node.tensor("self"),), {"call": node.label})
    source = node.tensor("src")
    attributes: dict[str, AttrValue] = {"axis": node.integer("dim", 0)}
    node.emit("index_put", (copied, source, node.listed((0,))), attributes)


def _slice_backward(node: AtenNode) -> None:
    grad = next(n for n in _GRADS if node.is_given(n))
    attributes: dict[str, AttrValue] = {"shape": node.result().shape}
    if node.is_given("dim"):
        attributes["axes"] = (node.integer("dim"),)
    node.emit("slice_backward", (node.tensor(grad),), attributes)


_GRADS = ("grad_output", "grad", "grad_in")


def _masked_select(node: AtenNode) -> None:
    node.emit("compress", (node.tensor("self"), node.tensor("mask")))


def _masked_scatter(node: AtenNode) -> None:
    x, mask = node.tensor("self"), node.tensor("mask")
    node.emit("index_put", (x, node.tensor("source"), mask), {"axis": 0})


INDEXING_HANDLERS: Mapping[str, Handler] = {
    "aten.index": _index,
    "aten._unsafe_index": _index,
    "aten.index_put": _index_put,
    "aten._index_put_impl": _index_put,
    "aten._unsafe_index_put": _index_put,
    "aten.index_select": _gather("gather"),
    "aten.index_add": _index_along(accumulate=True, values="source"),
    "aten.index_reduce": _index_along(accumulate=True, values="source"),
    "aten.index_copy": _index_along(accumulate=False, values="source"),
    "aten.index_fill": _index_along(accumulate=False, values="value"),
    "aten.gather": _gather("gather_elements"),
    "aten.take_along_dim": _gather("gather_elements"),
    "aten.take": _take,
    "aten.scatter": _scatter,
    "aten.scatter_add": _scatter,
    "aten.scatter_reduce": _scatter,
    "aten.slice_scatter": _put_back,
    "aten.select_scatter": _put_back,
    "aten.slice_backward": _slice_backward,
    "aten.select_backward": _slice_backward,
    "aten.diagonal_backward": _slice_backward,
    "aten.unfold_backward": _slice_backward,
    "aten.value_selecting_reduction_backward": _slice_backward,
    "aten.masked_select": _masked_select,
    "aten.masked_scatter": _masked_scatter,
}
"""ATen ops to the functions that write them."""
