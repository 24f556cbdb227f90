"""ATen ops that multiply matrices."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.op_map_elementwise import of
from perfc.ir import AttrValue


def _linear(node: AtenNode) -> None:
    """The weight is [out, in]."""
    operands = [node.tensor("input"), node.tensor("weight")]
    bias = node.optional("bias")
    node.emit("linear", (*operands, bias) if bias else operands)


def _addmm(node: AtenNode) -> None:
    """Beta and alpha are factors of the one kernel; the weight is [in, out]."""
    operands = [node.tensor("mat1"), node.tensor("mat2")]
    if node.number("beta", 1.0):
        operands.append(node.tensor("self"))
    attributes: dict[str, AttrValue] = {"weight_is_kn": True}
    node.emit("linear", operands, attributes)


def _addmm_activation(node: AtenNode) -> None:
    operands = [node.tensor("mat1"), node.tensor("mat2"), node.tensor("self")]
    (x,) = node.helper("linear", operands, {"weight_is_kn": True})
    node.emit("gelu" if node.flag("use_gelu") else "relu", (x,))


def _plus(left: str, right: str) -> Handler:
    """A product added to `self`, which is copied into the result first."""

    def handler(node: AtenNode) -> None:
        operands = (node.tensor(left), node.tensor(right))
        if not node.number("beta", 1.0):
            node.emit("matmul", operands)
            return
        (made,) = node.helper("matmul", operands)
        node.emit("add", (made, node.tensor("self")))

    return handler


def _outer(node: AtenNode) -> None:
    (column,) = node.helper("unsqueeze", (node.tensor("self"),), {"axes": (1,)})
    node.emit("mul", (column, node.tensor("vec2")))


def _einsum(node: AtenNode) -> None:
    node.emit("einsum", node.tensors("tensors"), {"equation": node.text("equation")})


def _linear_backward(node: AtenNode) -> None:
    """Two products and a sum: only MKL-DNN's has an op of its own."""
    msg = "the backward of a fused linear layer is not a call of eager PyTorch on CUDA"
    raise Misfit(msg)


PRODUCT_HANDLERS: Mapping[str, Handler] = {
    "aten.linear": _linear,
    "aten.addmm": _addmm,
    "aten._addmm_activation": _addmm_activation,
    "aten.mm": of("matmul", "self", "mat2"),
    "aten.bmm": of("matmul", "self", "mat2"),
    "aten.matmul": of("matmul", "self", "other"),
    "aten.mv": of("matmul", "self", "vec"),
    "aten.dot": of("matmul", "self", "tensor"),
    "aten.vdot": of("matmul", "self", "other"),
    "aten.baddbmm": _plus("batch1", "batch2"),
    "aten.addmv": _plus("mat", "vec"),
    "aten.outer": _outer,
    "aten.ger": _outer,
    "aten.einsum": _einsum,
    "aten.linear_backward": _linear_backward,
}
"""ATen ops to the functions that write them."""
