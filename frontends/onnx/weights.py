"""Test of which tensors of a file lie in device memory, and which are numbers."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import Constant


def is_weight(constant: Constant) -> bool:
    """Whether a tensor lies in device memory: shape arithmetic does not.

    Weights are floats, or quantised to at most 8 bits, with a scale beside them;
    an integer tensor too large to be shape arithmetic is a buffer.
    """
    type_ = constant.type
    if not type_.rank or type_.dtype.kind == "string":
        return False
    if type_.dtype.is_float:
        return not (constant.value == 1.0 and constant.type.shape[-1] == 1)
    quantised = type_.dtype.kind in ("int", "uint") and type_.dtype.bits <= 8  # noqa: PLR2004
    return constant.elements is None or (quantised and type_.rank > 1)


_SCALING = frozenset({"Mul", "Div", "Pow"})


def numbers_of(proto: onnx.GraphProto) -> AbstractSet[str]:
    """Names of one-element tensors that factors or exponents are read from.

    PyTorch's exporter writes `x * 0.125` with an initializer of shape [1].
    """
    one = {t.name for t in proto.initializer if tuple(t.dims) == (1,)}
    scaling = (node.input for node in proto.node if node.op_type in _SCALING)
    return one.intersection(name for names in scaling for name in names)
