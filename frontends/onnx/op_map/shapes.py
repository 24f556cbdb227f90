"""ONNX ops that view, index or describe tensors."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx import reader
from perfc.frontends.onnx.node import Handler, OnnxNode, plain
from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.weights import is_weight
from perfc.ir import DTYPES, AttrValue, TensorType, Value

_FAR = 2**63 - 1


def _constant(node: OnnxNode) -> bool:
    where = f"constant {node.results[0]!r}"
    if "value" in node.tensors:
        constant = reader.convert_tensor(node.tensors["value"], where)
    elif "value_int" in node.attributes:
        constant = _integers((node.integer("value_int", 0),), ())
    elif (values := node.integers("value_ints")) is not None:
        constant = _integers(values, (len(values),))
    elif "value_float" in node.attributes:
        value = node.number("value_float", 0.0)
        constant = reader.Constant(TensorType(DTYPES["f32"], ()), value=value)
    elif isinstance(floats := node.attributes.get("value_floats"), tuple):
        numbers = tuple(n for n in floats if isinstance(n, float))
        constant = reader.Constant(
            TensorType(DTYPES["f32"], (len(floats),)), numbers=numbers
        )
    elif node.attributes.get("value_string") is not None:
        constant = reader.Constant(TensorType(DTYPES["string"], ()))
    elif isinstance(strings := node.attributes.get("value_strings"), tuple):
        constant = reader.Constant(TensorType(DTYPES["string"], (len(strings),)))
    else:
        return False
    made = node.emit("constant", attributes=constant_attributes(constant))
    node.constants[made.results[0]] = constant
    return True


def _integers(values: tuple[int, ...], shape: tuple[int, ...]) -> reader.Constant:
    return reader.Constant(TensorType(DTYPES["i64"], shape), values)


def constant_attributes(constant: reader.Constant) -> dict[str, AttrValue]:
    """Return the attributes of the `constant` op that makes *constant*."""
    attributes: dict[str, AttrValue] = {
        "dtype": constant.type.dtype,
        "shape": constant.type.shape,
    }
    if constant.elements is not None:
        attributes["elements"] = constant.elements
    if constant.value is not None:
        attributes["value"] = constant.value
    return attributes


def _with_axes(op: str) -> Handler:
    """Axes as an attribute (before opset 13) or an operand (after), mostly constant."""

    def handler(node: OnnxNode) -> bool:
        axes = node.integers("axes")
        if axes is None:
            axes = node.constant_integers(1)
        if axes is None:
            node.emit(op)
        else:
            node.emit(op, node.present[:1], {"axes": axes})
        return True

    return handler


def _reshape(node: OnnxNode) -> bool:
    if len(node.present) != 2:  # opset 5 and later
        return False
    node.emit("reshape", attributes={"allowzero": bool(node.integer("allowzero", 0))})
    return True


def _transpose(node: OnnxNode) -> bool:
    perm, rank = node.integers("perm"), node.rank(0)
    if perm is None:
        if rank is None:
            return False
        perm = tuple(reversed(range(rank)))
    node.emit("transpose", attributes={"perm": perm})
    return True


def _cast(node: OnnxNode) -> bool:
    dtype = reader.convert_dtype(node.integer("to", 0), f"cast {node.results[0]!r}")
    node.emit("cast", node.present[:1], {"dtype": dtype})
    return True


def _bit_cast(node: OnnxNode) -> bool:
    dtype = reader.convert_dtype(node.integer("to", 0), f"bit cast {node.results[0]!r}")
    node.emit("bit_cast", attributes={"dtype": dtype})
    return True


def _split(node: OnnxNode) -> bool:
    """Sizes as an attribute or an operand, mostly constant, else equal parts."""
    attributes: dict[str, AttrValue] = {"axis": node.integer("axis", 0)}
    sizes = node.integers("split") or node.constant_integers(1)
    if sizes is None:
        node.emit("split", attributes={**attributes, "parts": len(node.results)})
    else:
        node.emit("split", node.present[:1], {**attributes, "sizes": sizes})
    return True


def _slice(node: OnnxNode) -> bool:
    """Give a slice its five operands, whichever the file leaves out."""
    starts, x = node.integers("starts"), node.operand(0)
    if x is not None and starts is not None:  # before opset 10, all are attributes
        ends = node.integers("ends") or ()
        operands = [x, listed(node, starts), listed(node, ends)]
        axes = node.integers("axes") or tuple(range(len(starts)))
        operands += [listed(node, axes), listed(node, (1,) * len(starts))]
        node.emit("slice", tuple(operands))
        return True
    first, last = node.operand(1), node.operand(2)
    if x is None or first is None or last is None:
        return False
    count = len(node.constant_integers(1) or ())
    axes_value, steps = node.operand(3), node.operand(4)
    if not count and (axes_value is None or steps is None):
        return _computed_slice(node)
    axes_value = axes_value or listed(node, tuple(range(count)))
    steps = steps or listed(node, (1,) * count)
    node.emit("slice", (x, first, last, axes_value, steps))
    return True


def _computed_slice(node: OnnxNode) -> bool:
    """Emit a slice of an unknown number of axes, without steps and maybe axes."""
    if node.operand(4) is not None:
        return False  # steps without axes
    node.emit("slice", node.present)
    return True


def listed(node: OnnxNode, values: tuple[int, ...]) -> Value:
    """Add a constant vector of integers, which the file left out."""
    constant = _integers(values, (len(values),))
    value = node.emit_helper("constant", (), constant_attributes(constant))
    node.constants[value] = constant
    return value


def _shape(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {"start": node.integer("start", 0)}
    end = node.integer("end", _FAR)
    if end != _FAR:
        attributes["end"] = end
    node.emit("shape", attributes=attributes)
    return True


def _constant_of_shape(node: OnnxNode) -> bool:
    dtype = DTYPES["f32"]
    number: float | None = 0.0
    if "value" in node.tensors:
        value: onnx.TensorProto = node.tensors["value"]
        constant = reader.convert_tensor(value, f"constant {node.results[0]!r}")
        dtype, number = constant.type.dtype, constant.value
        if constant.elements:
            number = constant.elements[0]
    shape = node.constant_integers(0)
    if shape is None or node.location.origin:
        node.emit("fill", attributes={"dtype": dtype, "value": number})
    else:
        _write_out(node, TensorType(dtype, shape).checked(), number)
    return True


def _write_out(node: OnnxNode, type_: TensorType, number: float | None) -> None:
    """Make the weight or the constant that an exporter wrote as a number repeated.

    Where the file notes a call of the model, that is what makes it when it runs.
    """
    constant = reader.Constant(type_, value=number)
    if not type_.dtype.is_float:
        known = number is not None and type_.numel <= reader.MAX_ELEMENTS
        elements = (int(number or 0),) * type_.numel if known else None
        constant = reader.Constant(type_, elements)
    if is_weight(constant) and node.graph.parent is None:
        made = node.graph.add_parameter(node.results[0], type_)
    else:
        made = node.emit("constant", (), constant_attributes(constant)).results[0]
    node.constants[made] = constant


SHAPE_HANDLERS: Mapping[str, Handler] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Shape": _shape,
    "Unsqueeze": _with_axes("unsqueeze"),
    "Squeeze": _with_axes("squeeze"),
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Flatten": plain("flatten", axis=1),
    "Expand": plain("expand"),
    "Cast": _cast,
    "Concat": plain("concat", axis=0),
    "Split": _split,
    "Slice": _slice,
    "Identity": plain("identity"),
    "Size": plain("size"),
    "Range": plain("range"),
    "CastLike": plain("cast_like"),
    "BitCast": _bit_cast,
}
