"""Activations of one operand that sources also spell out in several calls."""

from __future__ import annotations

from perfc.ir.opdef import OpDef
from perfc.ir.ops.rules import (
    IN_PLACE,
    OPTIONAL_TEXT,
    OPTIONAL_TEXTS,
    first_operand,
    per_element,
)


def _activation(
    name: str, flops: int, summary: str, **attributes: tuple[type, ...]
) -> OpDef:
    return OpDef(
        name=name,
        arity=(1, 1),
        infer=first_operand,
        work=per_element(flops),
        attributes={"spelled_out": OPTIONAL_TEXTS, **IN_PLACE, **attributes},
        summary=summary,
    )


# Flops as in elementwise.py: arithmetic instructions of the fp32 device routine.
OPS = (
    _activation(
        "gelu",
        10,
        "Gaussian error linear unit: exact, or approximate = tanh or sigmoid",
        approximate=OPTIONAL_TEXT,
    ),
    _activation("silu", 5, "x * sigmoid(x)"),
    _activation("hardswish", 4, "x * clip(x + 3, 0, 6) / 6"),
    _activation("mish", 14, "x * tanh(softplus(x))"),
)
KINDS = frozenset(op.name for op in OPS)
"""Names of these activations."""
