"""Embedding bags that an exporter wrote as one op of another domain."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.frontends.onnx.node import Handler, OnnxNode
from perfc.ir import AttrValue, Node, PerfcError, Record, TensorType
from perfc.ir.opdef import Abstract
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.support import UnsupportedModelError

_MODES = ("sum", "mean", "max")
_MATRIX = 2


def _perfc(node: OnnxNode) -> bool:
    """`perfc::EmbeddingBag(weight, indices, offsets, weights; mode)`."""
    return _bag(node, node.attributes.get("mode", "sum"))


def _aten(node: OnnxNode) -> bool:
    """`aten::ATen` with `operator="embedding_bag"`, PyTorch's older fall-back.

    Arguments of `aten::embedding_bag` are attributes of the same names.
    """
    if node.text("operator", "") != "embedding_bag":
        return False
    return _bag(node, node.attributes.get("mode", 0))


def _bag(node: OnnxNode, mode: AttrValue) -> bool:
    """Write the bag; of the four results of ATen's op only the first is pooled rows."""
    weight, indices, offsets, weights = (node.operand(index) for index in range(4))
    if weight is None or indices is None:
        msg = f"{node.op} {node.location.name!r} needs a weight and indices"
        raise UnsupportedModelError(msg)
    if weight.type is None or weight.type.rank != _MATRIX:
        found = "unknown" if weight.type is None else str(weight.type)
        msg = (
            f"{node.op} {node.location.name!r}: the type of its weight "
            f"{weight.name!r} is {found}, expected a matrix"
        )
        raise UnsupportedModelError(msg)
    rows, dim = weight.type.shape
    attributes: dict[str, AttrValue] = {
        "tables": (Record({"rows": rows, "dim": dim}),),
        "mode": _mode(node, mode),
    }
    flags = {
        "has_offsets": offsets is not None,
        "include_last_offset": bool(node.integer("include_last_offset", 0)),
        "weighted": weights is not None,
    }
    attributes.update({name: True for name, value in flags.items() if value})
    padding = node.integer("padding_idx", -1)
    if padding >= 0:
        attributes["padding_index"] = padding
    operands = (weight, indices, offsets, weights)
    present = [value for value in operands if value is not None]
    made = node.graph.add(
        "embedding_bag",
        present,
        node.results[:1],
        attributes,
        location=node.location,
    )
    try:
        made.results[0].type = _type(made)
    except PerfcError as error:
        msg = f"{node.op} {node.location.name!r}: {error}"
        raise type(error)(msg) from None
    return True


def _type(made: Node) -> TensorType | None:
    """Return the exact type, if the operands have one.

    What files declare is not to be trusted here: PyTorch's exporter, which does not
    know the op, notes the type of another of the four results.
    """
    types = [value.type for value in made.operands if value.type is not None]
    if len(types) < len(made.operands):
        return None
    operands = [Abstract(type_) for type_ in types]
    (pooled,) = BUILTIN_OPS[made.op].infer(made.attributes, operands)
    return None if pooled is None else pooled.type


def _mode(node: OnnxNode, mode: AttrValue) -> str:
    """Return the mode, which ATen numbers."""
    if isinstance(mode, int) and 0 <= mode < len(_MODES):
        return _MODES[mode]
    if isinstance(mode, str) and mode in _MODES:
        return mode
    msg = (
        f"{node.op} {node.location.name!r}: mode {mode!r} is none of "
        f"{', '.join(_MODES)}, 0 to 2"
    )
    raise UnsupportedModelError(msg)


EMBEDDING_HANDLERS: Mapping[str, Handler] = {
    "perfc::EmbeddingBag": _perfc,
    "aten::ATen": _aten,
    "org.pytorch.aten::ATen": _aten,
}
"""Op type to the function that writes it."""
