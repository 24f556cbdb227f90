"""Normalisations by statistics of the input."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from perfc.ir.opdef import Abstract, OpDef, Trait, named
from perfc.ir.ops import rules
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import F32, TensorType


def _infer_layer_norm(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """The input normed, and its mean and inverse deviation for whoever asks."""
    x = operands[0].type
    axis = rules.normalize_axis(attributes.integer("axis"), x.rank)
    rows = attrs.evolve(x, shape=(*x.shape[:axis], *(1,) * (x.rank - axis)))
    return [Abstract(x), Abstract(rows), Abstract(rows)]


LAYER_NORM = OpDef(
    name="layer_norm",
    arity=(1, 3),
    results=None,
    infer=_infer_layer_norm,
    work=rules.per_element(8),
    attributes={
        "axis": (int,),
        "epsilon": rules.OPTIONAL_FLOAT,
        "spelled_out": rules.OPTIONAL_TEXTS,
    },
    traits=frozenset({Trait.KEEPS_SHAPE, Trait.STATISTICS}),
    summary="normalisation over the trailing axes, with scale and bias",
)
RMS_NORM = OpDef(
    name="rms_norm",
    arity=(1, 2),
    infer=rules.same_rank_axis,
    work=rules.per_element(4),
    attributes={
        "axis": (int,),
        "epsilon": rules.OPTIONAL_FLOAT,
        "spelled_out": rules.OPTIONAL_TEXTS,
    },
    traits=frozenset({Trait.KEEPS_SHAPE, Trait.STATISTICS}),
    summary="division by the root mean square of the trailing axes, with scale",
)


def _infer_group_norm(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0].type
    if x.rank < 2:
        msg = f"expected [batch, channels, ...], got {x}"
        raise VerifyError(msg)
    channels = x.shape[1]
    groups = attributes.integer("groups", 1)
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        msg = f"{channels} channels cannot be cut into {groups} groups"
        raise VerifyError(msg)
    for operand in operands[1:]:
        per_group = operand.type.numel == attributes.get("groups")  # opset 18 has it
        if not per_group:
            rules.require_equal("channels and weights", channels, operand.type.numel)
    return [Abstract(x)]


GROUP_NORM = OpDef(
    name="group_norm",
    arity=(1, 3),
    infer=_infer_group_norm,
    work=rules.per_element(8),
    attributes={
        "groups": rules.OPTIONAL_INT,  # a group per channel if absent
        "epsilon": rules.OPTIONAL_FLOAT,
    },
    traits=frozenset({Trait.KEEPS_SHAPE, Trait.STATISTICS}),
    summary="normalisation per sample over each group of channels, with scale and bias",
)


def _infer_weight_norm(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """The norms are of the type that sums are made in."""
    direction, size = operands[0].type, operands[1].type
    axis = rules.normalize_axis(attributes.integer("axis"), direction.rank)
    rules.require_equal("slices and sizes", direction.shape[axis], size.numel)
    narrow = size.dtype.bits < F32.bits
    norms = TensorType(F32 if narrow else size.dtype, size.shape)
    return [Abstract(direction), Abstract(norms)]


WEIGHT_NORM = OpDef(
    name="weight_norm",
    arity=(2, 2),
    results=None,
    infer=_infer_weight_norm,
    work=rules.per_element(3),
    attributes={"axis": (int,)},
    summary="each slice of x along an axis scaled to a given norm; and its own norms",
)

OPS = named(LAYER_NORM, RMS_NORM, GROUP_NORM, WEIGHT_NORM)
