"""ATen ops that look rows of tables up, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue, Record
from perfc.ir.dims import Dim

_MODES = ("sum", "mean", "max")


def _embedding(node: AtenNode) -> None:
    operands = (node.tensor("weight"), node.tensor("indices"))
    node.emit("gather", operands, {"axis": 0})


def _renorm(node: AtenNode) -> None:
    """Sort the indices so that no row is scaled twice, then scale the rows.

    `embedding_renorm_cuda_` in `Embedding.cu`; rows are counted as if none were twice.
    """
    table, indices = node.tensor("self"), node.tensor("indices")
    (flat,) = node.helper("reshape", (indices, node.listed((-1,))), {"view": True})
    places, _ = node.helper("sort", (flat,), {"axis": 0}, count=2)
    (rows,) = node.helper("gather", (table, places), {"axis": 0})
    (tuples,) = node.helper("unsqueeze", (places,), {"axes": (1,)})
    node.emit("index_put", (table, rows, tuples), {"axis": 0})


def _mode(node: AtenNode) -> str:
    code = node.integer("mode", 0)
    if not 0 <= code < len(_MODES):
        msg = f"mode {code}"
        raise Misfit(msg)
    return _MODES[code]


def _bag(node: AtenNode) -> None:
    """The other results are the kernel's notes for its own backward."""
    weight, indices = node.tensor("weight"), node.tensor("indices")
    weights = node.optional("per_sample_weights")
    rows, dim = weight.type.shape
    attributes: dict[str, AttrValue] = {
        "tables": (Record({"rows": rows, "dim": dim}),),
        "mode": _mode(node),
        "has_offsets": True,
        "include_last_offset": node.flag("include_last_offset"),
        "weighted": weights is not None,
    }
    if (padding := node.integer("padding_idx", -1)) >= 0:
        attributes["padding_index"] = padding
    operands = [weight, indices, node.tensor("offsets")]
    if weights is not None:
        operands.append(weights)
    node.emit("embedding_bag", operands, attributes)


def _grad(node: AtenNode) -> Operand:
    return node.tensor("grad" if node.is_given("grad") else "grad_output")


def _shape(node: AtenNode) -> tuple[Dim, Dim]:
    return node.dim("num_weights"), _grad(node).type.shape[-1]


def _gradient(
    node: AtenNode, op: str, names: tuple[str, ...], attributes: dict[str, AttrValue]
) -> None:
    """A dense gradient is the table's; a sparse one the indices and their rows."""
    operands = [_grad(node), *(node.tensor(name) for name in names)]
    weights = node.optional("per_sample_weights")
    if weights is not None:
        attributes["weighted"] = True
        operands.append(weights)
    if (padding := node.integer("padding_idx", -1)) >= 0:
        attributes["padding_index"] = padding
    if "sparse" not in node.name and not node.flag("sparse"):
        node.emit(op, operands, attributes)
        return
    made = node.helper(op, operands, {**attributes, "sparse": True}, count=2)
    node.alias_sparse(0, *made)


def _embedding_backward(node: AtenNode) -> None:
    _gradient(node, "embedding_backward", ("indices",), {"shape": _shape(node)})


def _bag_backward(node: AtenNode) -> None:
    bounds = "offsets" if node.is_given("offsets") else "offset2bag"
    names = ("indices", bounds)
    rows, dim = _shape(node)
    attributes: dict[str, AttrValue] = {
        "tables": (Record({"rows": rows, "dim": dim}),),
        "mode": _mode(node),
        "has_offsets": True,
    }
    _gradient(node, "embedding_bag_backward", names, attributes)


def _weights_backward(node: AtenNode) -> None:
    """The gradient of the weights of samples; without offsets by the bag of each."""
    weight = node.tensor("weight")
    rows, dim = weight.type.shape
    attributes: dict[str, AttrValue] = {
        "tables": (Record({"rows": rows, "dim": dim}),),
        "mode": _mode(node),
        "has_offsets": True,
    }
    if (padding := node.integer("padding_idx", -1)) >= 0:
        attributes["padding_index"] = padding
    indices, bags = node.tensor("indices"), node.tensor("offset2bag")
    operands = (_grad(node), weight, indices, bags)
    node.emit("bag_weights_backward", operands, attributes)


def _fused_attributes(node: AtenNode) -> dict[str, AttrValue]:
    tables = [weight.type.shape for weight in node.tensors("weights")]
    return {
        "tables": tuple(Record({"rows": rows, "dim": dim}) for rows, dim in tables),
        "mode": node.text("mode"),
        "has_offsets": True,
        "include_last_offset": True,
        "weighted": node.optional("per_sample_weights") is not None,
    }


def _looked_up(node: AtenNode) -> tuple[Operand, ...]:
    weights = node.optional("per_sample_weights")
    given = (node.tensor("indices"), node.tensor("offsets"))
    return given if weights is None else (*given, weights)


def _fused_lookup(node: AtenNode) -> None:
    """Several tables at once, recorded as one call."""
    operands = (*node.tensors("weights"), *_looked_up(node))
    attributes, dtype = _fused_attributes(node), node.result().dtype
    if dtype != operands[0].type.dtype:
        attributes["out_dtype"] = dtype
    node.emit("embedding_bag", operands, attributes)


def _fused_update(node: AtenNode) -> None:
    """Its gradient, which updates the tables."""
    states = node.tensors("states") if node.arguments.get("states") else ()
    attributes = {**_fused_attributes(node), "optimizer": node.text("optimizer")}
    operands = (node.tensor("grad"), *_looked_up(node), *node.tensors("weights"))
    node.emit("embedding_bag_backward", (*operands, *states), attributes, results=())


EMBEDDING_HANDLERS: Mapping[str, Handler] = {
    "aten.embedding": _embedding,
    "aten.embedding_renorm": _renorm,
    "aten.embedding_backward": _embedding_backward,
    "aten.embedding_dense_backward": _embedding_backward,
    "aten.embedding_sparse_backward": _embedding_backward,
    "aten.embedding_bag": _bag,
    "aten._embedding_bag": _bag,
    "aten._embedding_bag_forward_only": _bag,
    "aten._embedding_bag_backward": _bag_backward,
    "aten._embedding_bag_dense_backward": _bag_backward,
    "aten._embedding_bag_per_sample_weights_backward": _weights_backward,
    "aten._embedding_bag_sparse_backward": _bag_backward,
    "perfc.embedding_bag": _fused_lookup,
    "perfc.embedding_bag_backward": _fused_update,
}
"""ATen ops to the functions that write them."""
