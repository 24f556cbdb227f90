"""Conversion of bytes to protobuf, and of small protobuf pieces to perfc's types."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from perfc.frontends.onnx.protobuf import onnx
from perfc.ir import DTYPES, AttrValue, DType, PerfcError, TensorType
from perfc.ir.dims import Dim, symbol
from perfc.ir.support import UnsupportedModelError
from perfc.ir.text import parse_dim

MAX_ELEMENTS = 4096
"""Integer constants up to this size keep their elements."""

MAX_FLOATS = 64
"""Float constants up to this size do: the scales of a resize, not weights."""

_T = onnx.TensorProto
_DTYPES: Mapping[int, DType] = {
    _T.FLOAT: DTYPES["f32"],
    _T.DOUBLE: DTYPES["f64"],
    _T.FLOAT16: DTYPES["f16"],
    _T.BFLOAT16: DTYPES["bf16"],
    _T.FLOAT8E4M3FN: DTYPES["f8e4m3"],
    _T.FLOAT8E4M3FNUZ: DTYPES["f8e4m3"],
    _T.FLOAT8E5M2: DTYPES["f8e5m2"],
    _T.FLOAT8E5M2FNUZ: DTYPES["f8e5m2"],
    _T.INT64: DTYPES["i64"],
    _T.INT32: DTYPES["i32"],
    _T.INT16: DTYPES["i16"],
    _T.INT8: DTYPES["i8"],
    _T.UINT64: DTYPES["u64"],
    _T.UINT32: DTYPES["u32"],
    _T.UINT16: DTYPES["u16"],
    _T.UINT8: DTYPES["u8"],
    _T.UINT4: DTYPES["u4"],
    _T.INT4: DTYPES["i4"],
    _T.BOOL: DTYPES["bool"],
    _T.COMPLEX64: DTYPES["c64"],
    _T.COMPLEX128: DTYPES["c128"],
    _T.STRING: DTYPES["string"],
    # By number: an older `onnx` has no names for them.
    23: DTYPES["f4e2m1"],
    24: DTYPES["f8e8m0"],
    25: DTYPES["u2"],
    26: DTYPES["i2"],
    27: DTYPES["f6e2m3"],
    28: DTYPES["f6e3m2"],
}
_NUMPY: Mapping[int, str] = {
    _T.INT64: "<i8",
    _T.INT32: "<i4",
    _T.INT16: "<i2",
    _T.INT8: "i1",
    _T.UINT64: "<u8",
    _T.UINT32: "<u4",
    _T.UINT16: "<u2",
    _T.UINT8: "u1",
    _T.BOOL: "?",
}
_FLOATS: Mapping[int, str] = {
    _T.FLOAT: "<f4",
    _T.DOUBLE: "<f8",
    _T.FLOAT16: "<f2",
    _T.BFLOAT16: "<u2",
}
_NO_NAMES = ("", "?")
_OPEN = -1
"""A size that is not known, as TensorFlow and Paddle write it."""
_BITS_OF_A_BYTE = 8


@attrs.frozen
class Constant:
    """A tensor written in the file.

    Attributes:
        type: Its type.
        elements: Its elements, for a small integer tensor stored inline.
        value: The one number that all elements are, for a small float tensor
            stored inline, if there is one.
        numbers: Its elements, for a list of a few floats stored inline.

    """

    type: TensorType
    elements: tuple[int, ...] | None = None
    value: float | None = None
    numbers: tuple[float, ...] | None = None


def parse_model(data: bytes) -> onnx.ModelProto:
    """Decode *data*."""
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise UnsupportedModelError(_damaged(data)) from None
    if model.ir_version <= 0 or not model.HasField("graph"):
        raise UnsupportedModelError(_damaged(data))
    return model


def _damaged(data: bytes) -> str:
    if not data:
        return "the file is empty"
    head = data[:512]
    if all(chr(byte) in string.printable for byte in head):
        return f"this is text, not an ONNX model; it begins {head[:30].decode()!r}"
    return f"not an ONNX model, or a damaged one ({len(data)} bytes)"


def utf8(text: str | bytes) -> str:
    """Return *text*, which protobuf hands out as bytes where it is damaged."""
    if isinstance(text, bytes):
        msg = f"not an ONNX model, or a damaged one: {text[:40]!r} is not UTF-8 text"
        raise UnsupportedModelError(msg)
    return text


def convert_dtype(code: int, where: str) -> DType:
    """Return perfc's element type for an ONNX one."""
    if code not in _DTYPES:
        msg = f"{where} has element type {code}, which perfc does not know"
        raise UnsupportedModelError(msg)
    return _DTYPES[code]


def convert_type(
    info: onnx.ValueInfoProto, *, name_open_dims: bool = False
) -> TensorType | None:
    """Return the declared type, or None where it is absent or incomplete.

    With *name_open_dims* a dimension that the file leaves without a name, or
    writes as -1, gets one, after the value and the axis.
    """
    type_ = info.type
    if type_.HasField("optional_type"):
        type_ = type_.optional_type.elem_type  # taken to be there
    if not type_.HasField("tensor_type"):
        return None
    tensor = type_.tensor_type
    if not tensor.HasField("shape") or tensor.elem_type not in _DTYPES:
        return None
    dims: list[Dim] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value != _OPEN:
            dims.append(dim.dim_value)
        elif dim.dim_param not in _NO_NAMES:
            dims.append(convert_dim(utf8(dim.dim_param)))
        elif name_open_dims:
            dims.append(symbol(f"{info.name}_dim_{axis}"))
        else:
            return None
    try:
        return TensorType(_DTYPES[tensor.elem_type], tuple(dims)).checked()
    except PerfcError as error:
        msg = f"declared type of {info.name!r}: {error}"
        raise type(error)(msg) from None


def type_proto(type_: TensorType | None) -> onnx.TypeProto:
    """Return *type_* as ONNX writes it; one that is not known is empty."""
    proto = onnx.TypeProto()
    if type_ is None:
        return proto
    codes = (code for code, dtype in _DTYPES.items() if dtype == type_.dtype)
    proto.tensor_type.elem_type = next(codes, _T.UNDEFINED)
    proto.tensor_type.shape.SetInParent()
    for dim in type_.shape:
        made = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            made.dim_value = dim
    return proto


def convert_dim(text: str) -> Dim:
    """Read a dimension parameter: an expression over names, or else one name."""
    try:
        return parse_dim(text)
    except PerfcError:
        return symbol(text)


def convert_tensor(tensor: onnx.TensorProto, where: str) -> Constant:
    """Return the type of a tensor, and what is kept of its elements."""
    type_ = TensorType(convert_dtype(tensor.data_type, where), tuple(tensor.dims))
    try:
        type_.checked()
    except PerfcError as error:
        msg = f"{where}: {error}"
        raise type(error)(msg) from None
    if tensor.data_location == _T.EXTERNAL:
        return Constant(type_)
    _check_size(tensor, type_, where)
    if type_.numel > MAX_ELEMENTS:
        return Constant(type_)
    if type_.dtype.is_float:
        floats: npt.NDArray[Any]
        if tensor.data_type == _T.FLOAT and not tensor.HasField("raw_data"):
            floats = np.array(tensor.float_data, dtype="<f4")
        elif tensor.data_type in _FLOATS and tensor.HasField("raw_data"):
            floats = np.frombuffer(tensor.raw_data, dtype=_FLOATS[tensor.data_type])
        else:
            return Constant(type_)
        if tensor.data_type == _T.BFLOAT16:  # the upper half of an fp32
            floats = (floats.astype("<u4") << 16).view("<f4")
        few = tuple(map(float, floats)) if len(floats) <= MAX_FLOATS else None
        return Constant(type_, value=_splat(floats), numbers=few)
    if tensor.data_type not in _NUMPY:
        return Constant(type_)
    return Constant(type_, elements=_integers(tensor))


def dense(tensor: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Return the tensor that a sparse one stands for, without its elements.

    ONNX stores it sparsely; the ops that read it read a dense tensor.
    """
    return onnx.TensorProto(
        name=tensor.values.name,
        data_type=tensor.values.data_type,
        dims=tensor.dims,
        data_location=_T.EXTERNAL,
    )


def _check_size(tensor: onnx.TensorProto, type_: TensorType, where: str) -> None:
    """Refuse a tensor whose data do not fill its shape."""
    if type_.dtype.kind == "string":
        expected, found, unit = type_.numel, len(tensor.string_data), "strings"
    elif tensor.HasField("raw_data"):
        expected, found, unit = type_.nbytes, len(tensor.raw_data), "bytes"
    else:
        found = len(tensor.float_data) + len(tensor.double_data)
        found += len(tensor.int32_data) + len(tensor.int64_data)
        found, unit = found + len(tensor.uint64_data), "numbers"
        expected = type_.numel
        if type_.dtype.kind == "complex":
            expected = 2 * expected
        if type_.dtype.bits < _BITS_OF_A_BYTE:
            expected = type_.nbytes
    if expected != found:
        msg = f"{where} holds {found} {unit}, but {type_} has {expected}"
        raise UnsupportedModelError(msg)


def _integers(tensor: onnx.TensorProto) -> tuple[int, ...]:
    if tensor.HasField("raw_data"):
        array = np.frombuffer(tensor.raw_data, dtype=_NUMPY[tensor.data_type])
        return tuple(int(v) for v in array.tolist())
    if tensor.data_type == _T.INT64:
        return tuple(tensor.int64_data)
    if tensor.data_type in (_T.UINT64, _T.UINT32):
        return tuple(tensor.uint64_data)
    return tuple(tensor.int32_data)


def _splat(values: npt.NDArray[Any]) -> float | None:
    if not len(values) or np.isnan(values[0]) or (values != values[0]).any():
        return None
    return float(values[0])


def convert_attribute(attribute: onnx.AttributeProto) -> AttrValue:
    """Return a scalar or list attribute; None for tensors and graphs."""
    match attribute.type:
        case onnx.AttributeProto.INT:
            value: AttrValue = attribute.i
        case onnx.AttributeProto.INTS:
            value = tuple(attribute.ints)
        case onnx.AttributeProto.FLOAT:
            value = attribute.f
        case onnx.AttributeProto.FLOATS:
            value = tuple(attribute.floats)
        case onnx.AttributeProto.STRING:
            value = _decoded(attribute.s)
        case onnx.AttributeProto.STRINGS:
            value = tuple(map(_decoded, attribute.strings))
        case _:
            value = None
    return value


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")
