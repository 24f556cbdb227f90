"""ONNX ops that run graphs, and those of sequences and optional tensors."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.frontends.onnx.op_map.registry import REGIONS
from perfc.frontends.onnx.op_map.shapes import listed
from perfc.ir import DTYPES, AttrValue, TensorType, Value

_WITHOUT_END = 2**63 - 1


def _regions(node: OnnxNode, op: str, operands: tuple[Value, ...]) -> bool:
    regions = tuple(node.regions[name] for name in REGIONS[node.op])
    node.emit(op, operands, regions=regions)
    return True


def _if(node: OnnxNode) -> bool:
    return _regions(node, "if", node.present)


def _loop(node: OnnxNode) -> bool:
    """A trip count left out is without end, a condition left out is true."""
    trips = node.operand(0) or listed(node, (_WITHOUT_END,))
    going = node.operand(1) or listed(node, (1,))
    carried = tuple(value for value in node.operands[2:] if value is not None)
    return _regions(node, "loop", (trips, going, *carried))


_SCAN_OPTIONS = {
    "scan_input_axes": "input_axes",
    "scan_input_directions": "input_reverse",
    "scan_output_axes": "output_axes",
    "scan_output_directions": "output_reverse",
}


def _scan(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {"inputs": node.integer("num_scan_inputs", 0)}
    for theirs, ours in _SCAN_OPTIONS.items():
        numbers = node.integers(theirs)
        if numbers is not None:
            attributes[ours] = numbers
    node.emit("scan", attributes=attributes, regions=(node.regions["body"],))
    return True


def _sequence_map(node: OnnxNode) -> bool:
    return _regions(node, "sequence_map", node.present)


def _sequence_empty(node: OnnxNode) -> bool:
    """A sequence has no tensor type; an empty one takes no bytes."""
    made = node.emit("sequence_empty")
    made.results[0].type = TensorType(DTYPES["f32"], (0,))
    return True


def _split_to_sequence(node: OnnxNode) -> bool:
    attributes: dict[str, AttrValue] = {
        "axis": node.integer("axis", 0),
        "keepdims": bool(node.integer("keepdims", 1)),
    }
    node.emit("split_to_sequence", attributes=attributes)
    return True


def _concat_from_sequence(node: OnnxNode) -> bool:
    attributes = {
        "axis": node.integer("axis", 0),
        "new_axis": node.integer("new_axis", 0),
    }
    node.emit("concat_from_sequence", attributes=attributes)
    return True


def _optional(node: OnnxNode) -> bool:
    """An optional tensor is the tensor, or nothing."""
    node.emit("identity" if node.present else "optional_empty")
    return True


def _optional_has_element(node: OnnxNode) -> bool:
    """Emit the test of an optional, which is empty without an input."""
    operands = node.present or (node.emit_helper("optional_empty", (), {}),)
    node.emit("optional_has_element", operands)
    return True


def _same(op: str) -> Handler:
    def handler(node: OnnxNode) -> bool:
        node.emit(op)
        return True

    return handler


CONTROL_HANDLERS: Mapping[str, Handler] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
    "SequenceEmpty": _sequence_empty,
    "SequenceConstruct": _same("sequence_construct"),
    "SequenceInsert": _same("sequence_insert"),
    "SequenceErase": _same("sequence_erase"),
    "SequenceAt": _same("sequence_at"),
    "SequenceLength": _same("sequence_length"),
    "SplitToSequence": _split_to_sequence,
    "ConcatFromSequence": _concat_from_sequence,
    "Optional": _optional,
    "OptionalGetElement": _same("identity"),
    "OptionalHasElement": _optional_has_element,
}
"""ONNX op type to the function that writes it."""
