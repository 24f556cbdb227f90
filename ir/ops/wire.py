"""What pooled rows are turned into on their way between ranks, and back.

The codecs of TorchRec's `qcomm` (fbgemm's `quantize_comm.py`): 16-bit and 8-bit floats
element by element; `int8` in blocks of 32 elements, a byte each, with an fp32 scale and
bias beside them, flat. Gradients may go back in another format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfc.ir.dims import ceil_div
from perfc.ir.opdef import Abstract, OpDef, named
from perfc.ir.ops.rules import per_element
from perfc.ir.record import Record
from perfc.ir.support import VerifyError
from perfc.ir.types import BF16, F8E4M3, F16, F32, U8, DType, TensorType

WIRE_BLOCK = 32
"""Elements that share a scale and a bias (`ROW_DIM_DEFAULT`)."""

_BESIDE_BYTES = 8
_BLOCKED = "int8"

WIRE_FORMATS: Mapping[str, DType] = {
    "fp32": F32,
    "fp16": F16,
    "bf16": BF16,
    "fp8": F8E4M3,
    _BLOCKED: U8,
}
"""Formats on the way, and what they are sent as."""


def block_bytes(format_: str) -> int:
    """Return the bytes that `WIRE_BLOCK` elements take on their way."""
    beside = _BESIDE_BYTES if format_ == _BLOCKED else 0
    return WIRE_BLOCK * WIRE_FORMATS[format_].bits // 8 + beside


def encoded(type_: TensorType, format_: str) -> TensorType:
    """Return the type that a tensor is sent as."""
    dtype = WIRE_FORMATS[format_]
    if format_ != _BLOCKED:
        return TensorType(dtype, type_.shape, type_.space)
    blocks = ceil_div(type_.numel, WIRE_BLOCK)
    return TensorType(dtype, (blocks * block_bytes(format_),), type_.space)


def _check(attributes: Record) -> None:
    for name in ("format", "gradient"):
        found = attributes.text(name)
        if found not in WIRE_FORMATS:
            msg = f"{name} {found!r} is none of {', '.join(WIRE_FORMATS)}"
            raise VerifyError(msg)


def _infer_encode(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    _check(attributes)
    return [Abstract(encoded(operands[0].type, attributes.text("format")).checked())]


def _infer_decode(
    attributes: Record, operands: Sequence[Abstract]
) -> Sequence[Abstract]:
    _check(attributes)
    x = operands[0].type
    shape = attributes.dims("shape")
    type_ = TensorType(attributes.dtype("dtype"), shape, x.space).checked()
    sent = encoded(type_, attributes.text("format"))
    unlike = isinstance(sent.numel, int) and sent.numel != x.numel
    if sent.dtype != x.dtype or (unlike and isinstance(x.numel, int)):
        msg = f"{type_} is sent as {sent}, not as {x}"
        raise VerifyError(msg)
    return [Abstract(type_)]


_DIRECTIONS = {"format": (str,), "gradient": (str,)}

ENCODE_ROWS = OpDef(
    name="encode_rows",
    arity=(1, 1),
    infer=_infer_encode,
    work=per_element(2),
    attributes=_DIRECTIONS,
    summary="x as it is sent to other ranks, in `format`; its `gradient` comes back",
)
DECODE_ROWS = OpDef(
    name="decode_rows",
    arity=(1, 1),
    infer=_infer_decode,
    work=per_element(2),
    attributes={**_DIRECTIONS, "dtype": (DType,), "shape": (tuple,)},
    summary="x, which was sent in `format`, as numbers of `dtype` and `shape` again",
)

OPS = named(ENCODE_ROWS, DECODE_ROWS)
