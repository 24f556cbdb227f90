"""Activations of one operand; most of them sources also spell out in calls."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.opdef import Abstract, OpDef, Trait, named, names_with
from perfc.ir.ops import rules
from perfc.ir.record import Record


def _activation(
    name: str, flops: int, summary: str, **attributes: tuple[type, ...]
) -> OpDef:
    return OpDef(
        name=name,
        arity=(1, 1),
        infer=rules.first_operand,
        work=rules.per_element(flops),
        attributes={
            "spelled_out": rules.OPTIONAL_TEXTS,
            **rules.IN_PLACE,
            **attributes,
        },
        traits=frozenset({Trait.ELEMENTWISE, Trait.KEEPS_SHAPE}),
        summary=summary,
    )


# Flops as in elementwise.py: arithmetic instructions of the fp32 device routine.
SAME_SHAPE = (
    _activation(
        "gelu",
        10,
        "Gaussian error linear unit: exact, or approximate = tanh or sigmoid",
        approximate=rules.OPTIONAL_TEXT,
    ),
    _activation("silu", 5, "x * sigmoid(x)"),
    _activation("hardswish", 4, "x * clip(x + 3, 0, 6) / 6"),
    _activation("mish", 14, "x * tanh(softplus(x))"),
)


def _infer_glu(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
    x = operands[0].type
    axis = rules.normalize_axis(attributes.integer("axis"), x.rank)
    half = x.shape[axis] // 2
    rules.require_equal(
        f"twice the half of axis {axis} of {x}", 2 * half, x.shape[axis]
    )
    shape = (*x.shape[:axis], half, *x.shape[axis + 1 :])
    return [Abstract(attrs.evolve(x, shape=shape))]


GLU = OpDef(
    name="glu",
    arity=(1, 1),
    infer=_infer_glu,
    work=rules.per_result(5),
    attributes={"axis": (int,)},
    summary="one half of x along an axis times the sigmoid of the other half",
)
OPS = named(*SAME_SHAPE, GLU)

ACTIVATIONS = names_with(Trait.ELEMENTWISE, OPS)
"""Names of the elementwise ones."""
