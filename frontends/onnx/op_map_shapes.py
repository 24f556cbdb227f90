"""ONNX ops that view, index or describe tensors."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import Constant, convert_dtype, convert_tensor
from perfc.ir import DTYPES, AttrValue, TensorType, Value, ceil_div

_FAR = 2**63 - 1


def _constant(node: OnnxNode) -> bool:
    where = f"constant {node.results[0]!r}"
    if "value" in node.tensors:
        constant = convert_tensor(node.tensors["value"], where)
    elif "value_int" in node.attributes:
        constant = _integers((node.integer("value_int", 0),), ())
    elif (values := node.integers("value_ints")) is not None:
        constant = _integers(values, (len(values),))
    elif "value_float" in node.attributes:
        value = node.number("value_float", 0.0)
        constant = Constant(TensorType(DTYPES["f32"], ()), value=value)
    elif isinstance(floats := node.attributes.get("value_floats"), tuple):
        constant = Constant(TensorType(DTYPES["f32"], (len(floats),)))
    else:
        return False
    made = node.emit("constant", attributes=constant_attributes(constant))
    node.constants[made.results[0]] = constant
    return True


def _integers(values: tuple[int, ...], shape: tuple[int, ...]) -> Constant:
    return Constant(TensorType(DTYPES["i64"], shape), values)


def constant_attributes(constant: Constant) -> dict[str, AttrValue]:
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


def _axes(node: OnnxNode, index: int) -> tuple[int, ...] | None:
    """Axes as an attribute (before opset 13) or a constant operand (after)."""
    axes = node.integers("axes")
    return axes if axes is not None else node.constant_integers(index)


def _unsqueeze(node: OnnxNode) -> bool:
    axes = _axes(node, 1)
    if axes is None:
        return False
    node.emit("unsqueeze", node.present[:1], {"axes": axes})
    return True


def _squeeze(node: OnnxNode) -> bool:
    axes = _axes(node, 1)
    if axes is None and node.operand(1) is not None:
        return False
    node.emit("squeeze", node.present[:1], {} if axes is None else {"axes": axes})
    return True


def _reshape(node: OnnxNode) -> bool:
    if len(node.present) != 2:  # noqa: PLR2004 - opset 5 and later
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


def _flatten(node: OnnxNode) -> bool:
    node.emit("flatten", attributes={"axis": node.integer("axis", 1)})
    return True


def _expand(node: OnnxNode) -> bool:
    node.emit("expand")
    return True


def _cast(node: OnnxNode) -> bool:
    dtype = convert_dtype(node.integer("to", 0), f"cast {node.results[0]!r}")
    node.emit("cast", node.present[:1], {"dtype": dtype})
    return True


def _concat(node: OnnxNode) -> bool:
    node.emit("concat", attributes={"axis": node.integer("axis", 0)})
    return True


def _split(node: OnnxNode) -> bool:
    axis = node.integer("axis", 0)
    sizes = node.integers("split") or node.constant_integers(1)
    if sizes is None and node.operand(1) is None:
        sizes = _equal_sizes(node, axis)
    if sizes is None:
        return False
    node.emit("split", node.present[:1], {"axis": axis, "sizes": sizes})
    return True


def _equal_sizes(node: OnnxNode, axis: int) -> tuple[int, ...] | None:
    """Pieces of equal size, the last maybe smaller; None if the size is not known."""
    x, count = node.operand(0), len(node.results)
    if x is None or x.type is None or not -x.type.rank <= axis < x.type.rank:
        return None
    size = x.type.shape[axis]
    if not isinstance(size, int):
        return None
    piece: int = ceil_div(size, count)
    return tuple(max(0, min(piece, size - i * piece)) for i in range(count))


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
    count = len(node.constant_integers(1) or (0,))
    axes_value = node.operand(3) or listed(node, tuple(range(count)))
    steps = node.operand(4) or listed(node, (1,) * count)
    node.emit("slice", (x, first, last, axes_value, steps))
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


def _gather(node: OnnxNode) -> bool:
    node.emit("gather", attributes={"axis": node.integer("axis", 0)})
    return True


def _gather_elements(node: OnnxNode) -> bool:
    node.emit("gather_elements", attributes={"axis": node.integer("axis", 0)})
    return True


def _gather_nd(node: OnnxNode) -> bool:
    node.emit("gather_nd", attributes={"batch_dims": node.integer("batch_dims", 0)})
    return True


def _constant_of_shape(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {"dtype": DTYPES["f32"], "value": 0.0}
    if "value" in node.tensors:
        value: onnx.TensorProto = node.tensors["value"]
        constant = convert_tensor(value, f"constant {node.results[0]!r}")
        attributes["dtype"] = constant.type.dtype
        attributes["value"] = constant.value
        if constant.elements:
            attributes["value"] = constant.elements[0]
    node.emit("fill", attributes=attributes)
    return True


SHAPE_HANDLERS: Mapping[str, Handler] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Shape": _shape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Flatten": _flatten,
    "Expand": _expand,
    "Cast": _cast,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
}
