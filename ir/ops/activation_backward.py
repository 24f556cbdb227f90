"""Gradients of activations: one element out of each element in."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.opdef import Abstract, OpDef, Trait, named, names_with
from perfc.ir.ops import rules
from perfc.ir.ops.gradient import first_saved
from perfc.ir.record import Record


def _elementwise(
    name: str, flops: int, saved: str, **attributes: tuple[type, ...]
) -> OpDef:
    return OpDef(
        name=f"{name}_backward",
        arity=(2, 2),
        infer=first_saved,
        work=rules.per_element(flops, operand=1),
        attributes={**rules.IN_PLACE, **attributes},
        traits=frozenset({Trait.ELEMENTWISE, Trait.KEEPS_SHAPE}),
        summary=f"gradient of {name}: of its result, and the {saved}",
    )


def _saved_with_axis(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    rank = max(operands[1].type.rank, 1)  # PyTorch gives a single number an axis, too
    rules.normalize_axis(attributes.integer("axis", -1), rank)
    return [Abstract(rules.converted(attributes, operands[1].type))]


def _along_axis(name: str, flops: int) -> OpDef:
    return OpDef(
        name=f"{name}_backward",
        arity=(2, 2),
        infer=_saved_with_axis,
        work=rules.per_element(flops, operand=1),
        attributes={"axis": rules.OPTIONAL_INT, **rules.RESULT_DTYPE},
        summary=f"gradient of {name} along one axis: of its result, and the result",
    )


# Flops as in elementwise.py; saved is what ATen's `*_backward` function reads.
ELEMENTWISE = (
    _elementwise("relu", 1, "result"),
    _elementwise("leaky_relu", 2, "input", alpha=rules.OPTIONAL_FLOAT),
    _elementwise(
        "elu", 3, "input", alpha=rules.OPTIONAL_FLOAT, scale=rules.OPTIONAL_FLOAT
    ),
    _elementwise("shrink", 1, "input", hard=rules.OPTIONAL_BOOL),
    _elementwise("log_sigmoid", 6, "input"),
    _elementwise("logit", 4, "input"),
    _elementwise("sigmoid", 3, "result"),
    _elementwise("tanh", 3, "result"),
    _elementwise("hardsigmoid", 2, "input"),
    _elementwise("softplus", 6, "input"),
    _elementwise("gelu", 18, "input", approximate=rules.OPTIONAL_TEXT),
    _elementwise("silu", 9, "input"),
    _elementwise("hardswish", 4, "input"),
    _elementwise("mish", 20, "input"),
    _elementwise(
        "clip", 2, "input", min=rules.OPTIONAL_FLOAT, max=rules.OPTIONAL_FLOAT
    ),
)
DROPOUT_BACKWARD = OpDef(
    name="dropout_backward",
    arity=(2, 2),
    infer=rules.first_operand,
    work=rules.per_element(2),
    traits=frozenset({Trait.ELEMENTWISE, Trait.KEEPS_SHAPE}),
    summary="gradient of dropout: of its result, and the mask",
)


def _infer_prelu(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Slopes are repeated to the size of the input, and added up afterwards."""
    return [Abstract(operands[1].type)] * 2


PRELU_BACKWARD = OpDef(
    name="prelu_backward",
    arity=(3, 3),
    results=2,
    infer=_infer_prelu,
    work=rules.per_element(4, operand=1),
    summary="gradients of prelu, both as large as x: of its result, x, and the slopes",
)
GLU_BACKWARD = OpDef(
    name="glu_backward",
    arity=(2, 2),
    infer=first_saved,
    work=rules.per_element(5, operand=1),
    attributes={"axis": (int,)},
    summary="gradient of glu: of its result, and the input",
)
OPS = named(
    *(*ELEMENTWISE, DROPOUT_BACKWARD, PRELU_BACKWARD, GLU_BACKWARD),
    *(_along_axis("softmax", 4), _along_axis("log_softmax", 6)),
)

ACTIVATION_GRADIENTS = names_with(Trait.ELEMENTWISE, OPS)
"""Names of the elementwise ones."""
