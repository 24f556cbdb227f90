"""ATen ops on sparse gradients: two tensors here, indices and their rows."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.op_map.elementwise import ELEMENTWISE_HANDLERS
from perfc.frontends.aten.op_map.views import VIEW_HANDLERS


def _indices(node: AtenNode) -> None:
    """PyTorch has a row of indices for each sparse axis: one."""
    indices = node.sparse_tensor("self").indices
    node.alias(0, *node.helper("unsqueeze", (indices,), {"axes": (0,)}))


def _values(node: AtenNode) -> None:
    values = node.sparse_tensor("self").values
    node.alias(0, *node.helper("alias", (values,), {"call": node.label}))


def _kept(dense: Handler) -> Handler:
    """A view, or an idle copy, of a sparse tensor is the tensor itself."""

    def handler(node: AtenNode) -> None:
        if not node.is_sparse("self"):
            dense(node)
            return
        given = node.sparse_tensor("self")
        node.alias_sparse(0, given.indices, given.values)

    return handler


def _add(dense: Handler) -> Handler:
    """`weight.add_(gradient, alpha=-rate)`: the step of sparse SGD."""

    def handler(node: AtenNode) -> None:
        if not node.is_sparse("other"):
            dense(node)
            return
        if not node.in_place:
            msg = "a sparse tensor added to another one"
            raise Misfit(msg)
        weight, grad = node.tensor("self"), node.sparse_tensor("other")
        operands = (weight, grad.indices, grad.values)
        node.emit("sparse_optimizer_step", operands, {"kind": "sgd"}, results=())
        node.alias(0, weight)

    return handler


def _step(node: AtenNode) -> None:
    """The update of the rows that a sparse gradient names, recorded as one call."""
    grad = node.sparse_tensor("grad")
    states = node.tensors("states") if node.arguments.get("states") else ()
    operands = (node.tensor("weight"), grad.indices, grad.values, *states)
    attributes = {"kind": node.text("kind")}
    node.emit("sparse_optimizer_step", operands, attributes, results=())


SPARSE_HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(("aten._indices", "aten.indices"), _indices),
    **dict.fromkeys(("aten._values", "aten.values"), _values),
    **{
        f"aten.{name}": _kept(VIEW_HANDLERS[f"aten.{name}"])
        for name in ("clone", "detach", "alias")
    },
    "perfc.sparse_optimizer_step": _step,
    "aten.add": _add(ELEMENTWISE_HANDLERS["aten.add"]),
}
"""ATen ops to the functions that write them; dense tensors go the usual way."""
