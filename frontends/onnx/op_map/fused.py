"""Fused convolutions, matmuls and norms of onnxruntime's domain `com.microsoft`.

Operands and attributes: `docs/ContribOperators.md` of onnxruntime 1.20. Each comes
in as the ops that it stands for: what it does to a matmul on the way out is an op
of its own, and images whose channels are last are seen with the channels first.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.frontends.onnx.heads import cut, defined, listed
from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map.convolution import CONVOLUTION_HANDLERS
from perfc.frontends.onnx.op_map.elementwise import ELEMENTWISE_HANDLERS
from perfc.frontends.onnx.op_map.tensors import TENSOR_HANDLERS
from perfc.frontends.onnx.op_map.transformer import TRANSFORMER_HANDLERS
from perfc.ir import AttrValue, Value

_BASES: Mapping[str, Handler] = {
    **CONVOLUTION_HANDLERS,
    **ELEMENTWISE_HANDLERS,
    **TENSOR_HANDLERS,
    **TRANSFORMER_HANDLERS,
}
_IMAGE_RANK = 4
_ACTIVATION_PARAMETERS = {"Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta")}
"""Names that the op of ONNX has for `activation_params`, where they matter here."""


def channels_last(base: Handler, op: str) -> Handler:
    """Make the handler of an op like *op*, whose handler is *base*, of x[n, ..., c].

    The channels are moved by views: libraries have kernels for either layout.
    """

    def handler(node: OnnxNode) -> bool:
        # The rank of images and weights: both as the window says, or declared.
        # What declares none is of two dimensions; another rank is then a type error.
        window = node.integers("kernel_shape")
        if window is not None:
            image_rank = len(window) + 2
        else:
            declared = max(
                (node.rank(i) or 0 for i in range(len(node.operands))), default=0
            )
            image_rank = declared if declared > 2 else _IMAGE_RANK
        x, rank = node.operand(0), image_rank
        if x is None:
            return False
        front = (0, rank - 1, *range(1, rank - 1))
        x = node.emit_helper("transpose", (x,), {"perm": front})
        value = _part(node, base, op, (x, *node.operands[1:]))
        if value is None:
            return False
        defined(node, 0, "transpose", (value,), {"perm": (0, *range(2, rank), 1)})
        return True

    return handler


def _part(
    node: OnnxNode, handler: Handler, op: str, operands: tuple[Value | None, ...]
) -> Value | None:
    """Write a part of *node* as if it were *op*; return its result."""
    name = node.graph.fresh_name(f"{node.results[0]}.{op}")
    part = attrs.evolve(node, op=op, operands=operands, results=(name,))
    return node.graph.find(name) if handler(part) else None


def _fused(base: Handler, op: str, *, added: int | None = None) -> Handler:
    """Make the handler of *op* with something added, and an activation after it."""

    def handler(node: OnnxNode) -> bool:
        activation = node.text("activation", "")
        if activation and activation not in _BASES:
            return False
        operands = node.operands[:added]
        other = None if added is None else node.operand(added)
        if not activation and other is None:
            return base(attrs.evolve(node, op=op, operands=operands))
        value = _part(node, base, op, operands)
        if value is None:
            return False
        if other is not None and activation:
            value = node.emit_helper("add", (value, other))
        elif other is not None:
            defined(node, 0, "add", (value, other), {})
        return _activated(node, activation, value) if activation else True

    return handler


def _activated(node: OnnxNode, activation: str, value: Value) -> bool:
    """Write the activation as what ONNX calls by the same name."""
    names = _ACTIVATION_PARAMETERS.get(activation, ())
    given = node.attributes.get("activation_params", ())
    numbers = given if isinstance(given, tuple) else ()
    last = attrs.evolve(
        node,
        op=activation,
        operands=(value,),
        attributes=dict(zip(names, numbers, strict=False)),
    )
    return _BASES[activation](last)


def _fused_matmul(node: OnnxNode) -> bool:
    """Transposed where asked; the factor is a multiplication of its own."""
    alpha = node.number("alpha", 1.0)
    if alpha == 1:
        return _matmul(node)
    value = _part(node, _matmul, node.op, node.operands)
    if value is None:
        return False
    defined(node, 0, "mul", (value, listed(node, alpha)), {})
    return True


def _matmul(node: OnnxNode) -> bool:
    """Transposes are views; of operands of unknown rank an Einstein sum says more."""
    left, right = node.operand(0), node.operand(1)
    if left is None or right is None:
        return False
    turned = [node.integer(name, 0) for name in ("transA", "transB")]
    batch = [node.integer(name, 0) for name in ("transBatchA", "transBatchB")]
    ranks = [node.rank(index) for index in range(2)]
    named = all(r is not None for r, t in zip(ranks, turned, strict=True) if t)
    if any(batch) or not named:
        axes = _axes("ik", turned[0], batch[0]), _axes("kj", turned[1], batch[1])
        node.emit("einsum", attributes={"equation": f"{','.join(axes)}->...ij"})
        return True
    operands = [
        _swapped(node, value, rank) if rank is not None and flag else value
        for value, rank, flag in zip((left, right), ranks, turned, strict=True)
    ]
    node.emit("matmul", tuple(operands))
    return True


def _axes(matrix: str, turned: int, batch: int) -> str:
    """Name the axes of a factor; the first one is of the matrix where *batch*."""
    stored = matrix[::-1] if turned else matrix
    return f"{stored[0]}...{stored[1]}" if batch else f"...{stored}"


def _swapped(node: OnnxNode, value: Value, rank: int) -> Value:
    perm = (*range(rank - 2), rank - 1, rank - 2)
    return node.emit_helper("transpose", (value,), {"perm": perm})


def _bias_add(node: OnnxNode) -> bool:
    x, bias, skip = (node.operand(index) for index in range(3))
    if x is None or bias is None or skip is None:
        return False
    biased = node.emit_helper("add", (x, bias))
    node.emit("add", (biased, skip))
    return True


def _bias_split_gelu(node: OnnxNode) -> bool:
    """`left * gelu(right)` of the halves of the last axis."""
    x, bias = node.operand(0), node.operand(1)
    if x is None or bias is None:
        return False
    biased = node.emit_helper("add", (x, bias))
    left, right = cut(node, biased, parts=2)
    node.emit("mul", (left, node.emit_helper("gelu", (right,))))
    return True


def _bias_softmax(node: OnnxNode) -> bool:
    """All axes from the given one on are one row; other broadcasts are not known."""
    x, bias = node.operand(0), node.operand(1)
    if x is None or bias is None or not node.integer("is_inner_broadcast", 1):
        return False
    biased = node.emit_helper("add", (x, bias))
    attributes: dict[str, AttrValue] = {"axis": node.integer("axis", 1), "flat": True}
    node.emit("softmax", (biased,), attributes)
    return True


def _group_norm(node: OnnxNode) -> bool:
    """Channels are last unless said otherwise; a SiLU may follow."""
    silu = node.integer("activation", 0)
    last = node.integer("channels_last", 1)
    base = channels_last(_normed, node.op) if last else _normed
    if not silu:
        return base(attrs.evolve(node, results=node.results[:1]))
    value = _part(node, base, node.op, node.operands)
    if value is None:
        return False
    defined(node, 0, "silu", (value,), {})
    return True


def _normed(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {
        "groups": node.integer("groups", 1),
        "epsilon": node.number("epsilon", 1e-5),
    }
    node.emit("group_norm", node.present[:3], attributes)
    return True


def _skip_group_norm(node: OnnxNode) -> bool:
    """The sum of two images and a bias, which is the second result, normed."""
    x, gamma, beta, skip, bias = (node.operand(index) for index in range(5))
    if x is None or skip is None or not node.integer("channels_last", 1):
        return False
    if node.rank(3) == 2:  # [n, c], the same at each pixel
        skip = node.emit_helper("unsqueeze", (skip,), {"axes": (1, 2)})
    if bias is not None:
        skip = node.emit_helper("add", (skip, bias))
    total = defined(node, 1, "add", (x, skip), {})
    operands = (total, gamma, beta)
    return _group_norm(attrs.evolve(node, operands=operands, results=node.results[:1]))


_conv, _gemm = CONVOLUTION_HANDLERS["Conv"], TENSOR_HANDLERS["Gemm"]

FUSED_HANDLERS: Mapping[str, Handler] = {
    f"com.microsoft::{name}": handler
    for name, handler in {
        "BiasAdd": _bias_add,
        "BiasSoftmax": _bias_softmax,
        "BiasSplitGelu": _bias_split_gelu,
        "FusedConv": _fused(_conv, "Conv", added=3),
        "FusedGemm": _fused(_gemm, "Gemm"),
        "FusedMatMul": _fused_matmul,
        "FusedMatMulActivation": _fused(_fused_matmul, "FusedMatMul"),
        "GroupNorm": _group_norm,
        "NhwcConv": channels_last(_conv, "Conv"),
        "NhwcFusedConv": _fused(channels_last(_conv, "Conv"), "Conv", added=3),
        "NhwcMaxPool": channels_last(CONVOLUTION_HANDLERS["MaxPool"], "MaxPool"),
        "SkipGroupNorm": _skip_group_norm,
        "TransposeMatMul": _fused_matmul,
    }.items()
}
"""Op type with its domain to the function that writes it."""
