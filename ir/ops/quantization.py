"""Between floats and integers with a scale."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir.opdef import Abstract, InferRule, OpDef, named
from perfc.ir.ops.rules import OPTIONAL_INT, per_element
from perfc.ir.record import Record
from perfc.ir.types import F32, U8, DType, TensorType


def _into_dtype() -> InferRule:
    def infer(attributes: Record, operands: Sequence[Abstract]) -> Sequence[Abstract]:
        x = operands[0].type
        return [Abstract(TensorType(attributes.dtype("dtype"), x.shape, x.space))]

    return infer


def _infer_dequantize(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    """Floats are as wide as the scale, unless said otherwise."""
    x, dtype = operands[0].type, operands[1].type.dtype
    if attributes.get("dtype") is not None:
        dtype = attributes.dtype("dtype")
    return [Abstract(TensorType(dtype, x.shape, x.space))]


_ATTRIBUTES = {"axis": OPTIONAL_INT, "block_size": OPTIONAL_INT}

QUANTIZE = OpDef(
    name="quantize",
    arity=(2, 3),
    infer=_into_dtype(),
    work=per_element(3),
    attributes={**_ATTRIBUTES, "dtype": (DType,)},
    summary="x, scale, zero point: x / scale rounded, shifted and cut to an integer",
)
DEQUANTIZE = OpDef(
    name="dequantize",
    arity=(2, 3),
    infer=_infer_dequantize,
    work=per_element(2),
    attributes={**_ATTRIBUTES, "dtype": (DType, type(None))},
    summary="x, scale, zero point: (x - zero point) * scale",
)


def _infer_dynamic(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    x = operands[0].type
    scale, zero_point = TensorType(F32, ()), TensorType(U8, ())
    return list(map(Abstract, (TensorType(U8, x.shape), scale, zero_point)))


DYNAMIC_QUANTIZE = OpDef(
    name="dynamic_quantize",
    arity=(1, 1),
    results=None,
    infer=_infer_dynamic,
    work=per_element(5),
    summary="x as 8-bit integers, with scale and zero point found from its range",
)

OPS = named(QUANTIZE, DEQUANTIZE, DYNAMIC_QUANTIZE)
