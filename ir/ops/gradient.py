"""What the ops of a backward pass share.

Operand 0 is the gradient of the forward op's first result, operand 1 its saved
input (or result, where the formula needs that one). `wants` names the gradients
that are computed, in the order of the results: nobody computes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perfc.ir.dims import Dim
from perfc.ir.opdef import Abstract, InferRule
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import TensorType

GradientType = Callable[[Record, Sequence[TensorType]], TensorType]
"""(attributes, operand types) -> the type of one gradient."""


def like(index: int) -> GradientType:
    """Give a gradient the type of operand *index*."""

    def found(attributes: Record, operands: Sequence[TensorType]) -> TensorType:
        if index >= len(operands):
            msg = f"expected more than {index} operands, got {len(operands)}"
            raise VerifyError(msg)
        return operands[index]

    return found


def wanted(attributes: Record) -> tuple[str, ...]:
    """Return the names of the gradients that a node computes."""
    names = attributes.get("wants")
    if not isinstance(names, tuple) or not all(isinstance(n, str) for n in names):
        msg = f"attribute 'wants' is {names!r}, expected names of gradients"
        raise VerifyError(msg)
    return tuple(map(str, names))


def infer_wanted(types: Mapping[str, GradientType]) -> InferRule:
    """Return the rule of an op whose results are the gradients it `wants`."""

    def infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
        found = [operand.type for operand in operands]
        results: list[Abstract] = []
        for name in wanted(attributes):
            if name not in types:
                msg = f"there is no gradient {name!r}; known: {', '.join(types)}"
                raise VerifyError(msg)
            results.append(Abstract(types[name](attributes, found)))
        return results

    return infer


def first_saved(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    """Give the one result the type of operand 1: what was saved has the same shape."""
    return [Abstract(operands[1].type)]


def vector_like(index: int, axis: int) -> GradientType:
    """Give a gradient one axis of operand *index*: a bias."""

    def found(attributes: Record, operands: Sequence[TensorType]) -> TensorType:
        type_ = like(index)(attributes, operands)
        if type_.rank <= axis:
            msg = f"{type_} has no axis {axis}"
            raise VerifyError(msg)
        size: tuple[Dim, ...] = (type_.shape[axis],)
        return TensorType(type_.dtype, size)

    return found
