"""ATen ops that multiply matrices."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.aten.node import AtenNode, Handler, Misfit
from perfc.frontends.aten.op_map.elementwise import of
from perfc.frontends.aten.template import Operand
from perfc.ir import AttrValue
from perfc.ir.dims import Dim


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
    """A matmul added to `self`, which is copied into the result first."""

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
    """Two matmuls and a sum: only MKL-DNN's has an op of its own."""
    msg = "the backward of a fused linear layer is not a call of eager PyTorch on CUDA"
    raise Misfit(msg)


def _scaled(node: AtenNode) -> None:
    """A product of 8-bit floats; a scale of the result is a number, too."""
    names = ("scale_a", "scale_b", "bias", "scale_result")
    scales = [node.optional(name) for name in names]
    operands = [node.tensor("self"), node.tensor("mat2")]
    operands += [each for each in scales if each is not None]
    node.emit("matmul", operands, {"dtype": node.result().dtype})


def _scaled_lists(node: AtenNode) -> None:
    """A product with several scales of each operand: of blocks, and of all of it."""
    operands = [node.tensor("self"), node.tensor("mat2")]
    operands += [*node.tensors("scale_a"), *node.tensors("scale_b")]
    if (bias := node.optional("bias")) is not None:
        operands.append(bias)
    node.emit("matmul", operands, {"dtype": node.result().dtype})


def _grouped(node: AtenNode) -> None:
    """One kernel for the matmuls of all groups; *offs* say where groups end.

    Ends are data: groups are taken to be equally large. Rows by group times a matrix
    each, as experts are, and in backward what makes the gradients of those matrices.
    Types other than bf16, which PyTorch multiplies group by group, are taken to be one
    kernel, too. Scales of 8-bit floats are few beside the matrices, and left out.
    """
    x, y = node.tensor("self"), node.tensor("mat2")
    told = {"dtype": node.result().dtype}
    if not node.is_given("offs"):
        node.emit("matmul", (x, y), told)
        return
    groups = node.tensor("offs").type.shape[0]
    node.assumption = f"{groups} groups are taken to be equally large"
    if (x.rank, y.rank) == (_MATRIX, _MATRIX + 1):
        (made,) = node.helper("matmul", (_split(node, x, groups), y), told)
        node.emit("reshape", (made, node.listed(node.result().shape)), {"view": True})
        return
    if (x.rank, y.rank) != (_MATRIX, _MATRIX):
        msg = f"groups of {x.type} and {y.type}"
        raise Misfit(msg)
    (rows,) = node.helper("transpose", (x,), {"perm": (1, 0)})
    (columns,) = node.helper(
        "transpose", (_split(node, rows, groups),), {"perm": (0, 2, 1)}
    )
    node.emit("matmul", (columns, _split(node, y, groups)), told)


_MATRIX = 2


def _split(node: AtenNode, x: Operand, groups: Dim) -> Operand:
    """View the rows of a matrix as so many groups."""
    rows, columns = x.type.shape
    if not isinstance(groups, int) or rows // groups * groups != rows:
        msg = f"{rows} rows in {groups} groups, which cannot be equally large"
        raise Misfit(msg)
    shape = node.listed((groups, rows // groups, columns))
    return node.helper("reshape", (x, shape), {"view": True})[0]


MATMUL_HANDLERS: Mapping[str, Handler] = {
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
    "aten._grouped_mm": _grouped,
    "aten._scaled_grouped_mm": _grouped,
    "aten._scaled_grouped_mm_v2": _grouped,
    "aten._scaled_mm": _scaled,
    "aten._scaled_mm_v2": _scaled_lists,
    "aten._linalg_det": of("det", "A"),
    "aten.linear_backward": _linear_backward,
}
"""ATen ops to the functions that write them."""
