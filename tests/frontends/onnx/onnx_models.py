"""Small ONNX models for tests, sound and unsound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Shape = Sequence[int | str | None]


def info(
    name: str, shape: Shape, dtype: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    """Declare a value."""
    return helper.make_tensor_value_info(name, dtype, list(shape))


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Make a node; names are separated by blanks, `-` is an operand left out."""
    names = [("" if name == "-" else name) for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=outputs, **attributes)


def constant(name: str, values: Sequence[int]) -> onnx.TensorProto:
    """Make an int64 initializer."""
    return onnx.numpy_helper.from_array(np.array(values, np.int64), name)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Make a float initializer whose numbers are elsewhere."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    return tensor


def model(
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    initializers: Sequence[onnx.TensorProto] = (),
    declared: Sequence[onnx.ValueInfoProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    opsets: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Make a model that reads `x`: f32[batch, 8] and returns `y`, unless told."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        list(inputs if inputs is not None else [info("x", ["batch", 8])]),
        list(outputs if outputs is not None else [info("y", ["batch", None])]),
        list(initializers),
        value_info=list(declared),
    )
    imports = {"": 18} if opsets is None else opsets
    return helper.make_model(
        graph,
        functions=list(functions),
        opset_imports=[helper.make_opsetid(*entry) for entry in imports.items()],
    )


def nested_ifs(depth: int) -> bytes:
    """Write a model of an If in an If in an If.

    By hand, because protobuf refuses to build what it refuses to read.
    """
    graph = _graph(node("Relu", "x", "y0").SerializeToString(), "y0")
    for level in range(1, depth + 1):
        made = node("If", "c", f"y{level}").SerializeToString()
        made += _field(5, _attribute("then_branch", graph))
        other = _graph(node("Relu", "x", f"e{level}").SerializeToString(), f"e{level}")
        made += _field(5, _attribute("else_branch", other))
        graph = _graph(made, f"y{level}")
    inputs = (info("x", ["batch", 8]), info("c", [], TensorProto.BOOL))
    graph += b"".join(_field(11, i.SerializeToString()) for i in inputs)
    head = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 18)])
    return head.SerializeToString() + _field(7, graph)


def _graph(made: bytes, output: str) -> bytes:
    declared = info(output, ["batch", 8]).SerializeToString()
    return _field(1, made) + _field(12, declared)


def _attribute(name: str, graph: bytes) -> bytes:
    head = onnx.AttributeProto(name=name, type=onnx.AttributeProto.GRAPH)
    return head.SerializeToString() + _field(6, graph)


def _field(number: int, content: bytes) -> bytes:
    """Write a length-delimited protobuf field."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])
