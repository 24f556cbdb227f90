"""What a trace says of the arguments of an op, whoever wrote it."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import attrs

from perfc.ir import DTYPES, DType, TensorType
from perfc.ir.types import MemorySpace

ELEMENT_TYPES: Mapping[str, str] = {
    "double": "f64",
    "float": "f32",
    "c10::Half": "f16",
    "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "f8e4m3",
    "c10::Float8_e4m3fnuz": "f8e4m3",
    "c10::Float8_e5m2": "f8e5m2",
    "c10::Float8_e5m2fnuz": "f8e5m2",
    "long int": "i64",
    "long": "i64",
    "int": "i32",
    "short int": "i16",
    "short": "i16",
    "signed char": "i8",
    "unsigned char": "u8",
    "bool": "bool",
    "c10::complex<float>": "c64",
    "c10::complex<double>": "c128",
}
"""Element types by the names that the profiler writes: those of C++
(`torch/csrc/profiler/util.cpp`, `caffe2::TypeMeta::name`)."""

_LIST = "TensorList"


class Unrecorded(enum.Enum):
    """An argument of which only the place is known."""

    ARGUMENT = "?"


UNRECORDED: Final = Unrecorded.ARGUMENT


@attrs.frozen(cache_hash=True)
class RecordedTensor:
    """A tensor that is an argument or a result.

    Attributes:
        shape: Its dimensions.
        dtype: Its element type; None where the trace does not tell: that of lists.
        strides: Elements from one index to the next along each axis; None where they
            are not recorded.
        on_host: Whether it is known to lie in the memory of the host.

    """

    shape: tuple[int, ...]
    dtype: DType | None
    strides: tuple[int, ...] | None = None
    on_host: bool = False

    def device_type(self, default: DType) -> TensorType:
        """Return its type on a device, where kernels are launched for it."""
        return TensorType(self.dtype or default, self.shape)

    def type(self, default: DType) -> TensorType:
        """Return its type, *default* in place of an element type not told."""
        space = MemorySpace.HOST if self.on_host else MemorySpace.DEVICE
        return TensorType(self.dtype or default, self.shape, space)


Plain: TypeAlias = "int | float | bool | str | tuple[Plain, ...] | None"
RecordedTensors: TypeAlias = "RecordedTensor | tuple[RecordedTensor | None, ...]"
RecordedArgument: TypeAlias = "RecordedTensors | Plain | Literal[Unrecorded.ARGUMENT]"


@attrs.frozen(cache_hash=True)
class RecordedOp:
    """A call of an op with its arguments, by their places; equal calls are equal.

    Attributes:
        name: Name, as `aten::addmm`.
        arguments: What it was given.
        overload: Which of the ops of this name, as `Tensor`; "" where not told.
        results: What it returned; () where not told.
        names: Names of its arguments; () where not told.

    """

    name: str
    arguments: tuple[RecordedArgument, ...]
    overload: str = ""
    results: tuple[RecordedTensor, ...] = ()
    names: tuple[str, ...] = ()

    def op(self, _name: str) -> RecordedOp:
        """Return itself: it has been taken apart already."""
        return self

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each argument, `()` for one that is no tensor."""
        return tuple(
            a.shape if isinstance(a, RecordedTensor) else () for a in self.arguments
        )


class RawInputs(NamedTuple):
    """The lists of a Kineto event, as they were read; None where it has none.

    Attributes:
        dims: Shapes; of a list of tensors a list of them.
        types: Names of types.
        values: Numbers, truth values and lists of them, as text.
        strides: As shapes.

    """

    dims: Sequence[object]
    types: Sequence[object] | None
    values: Sequence[object] | None
    strides: Sequence[object] | None

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each argument, `()` for one that is no tensor."""
        return tuple(map(whole_numbers, self.dims))

    def op(self, name: str) -> RecordedOp:
        """Return the call of an op of this name."""
        places = range(len(self.dims))
        return RecordedOp(name, tuple(self._argument(i) for i in places))

    def _argument(self, place: int) -> RecordedArgument:
        kind, dims = str(_at(self.types, place)), self.dims[place]
        strides = _at(self.strides, place)
        if kind == _LIST:
            # The tensors of a list, of which older profilers say nothing.
            shapes = listed(dims)
            if not shapes or not all(isinstance(shape, list) for shape in shapes):
                return UNRECORDED
            steps = listed(strides) or [None] * len(shapes)
            return tuple(
                RecordedTensor(whole_numbers(shape), None, _strides(shape, step))
                for shape, step in zip(shapes, steps, strict=False)
            )
        if kind in ELEMENT_TYPES:
            dtype = DTYPES[ELEMENT_TYPES[kind]]
            return RecordedTensor(whole_numbers(dims), dtype, _strides(dims, strides))
        if self.values is None or place >= len(self.values):
            return UNRECORDED
        return plain(str(self.values[place]))


def _at(values: Sequence[object] | None, place: int) -> object:
    return values[place] if values is not None and place < len(values) else None


def _strides(dims: object, strides: object) -> tuple[int, ...] | None:
    found = whole_numbers(strides)
    return found if found and len(found) == len(whole_numbers(dims)) else None


def whole_numbers(values: object) -> tuple[int, ...]:
    """Return the whole numbers of a list."""
    return tuple(n for n in listed(values) if isinstance(n, int))


def listed(value: object) -> list[object]:
    """Return a list that was read, empty for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


_OPEN_POINT = re.compile(r"(\d)\.(?!\d)")
"""C++ writes 0.0 as `0.`."""

_WORDS: Mapping[str, Plain] = {
    "<None>": None,
    "": None,
    "True": True,
    "False": False,
    "None": None,
}


def plain(text: str) -> Plain:
    """Read a number, a truth value or a list of them; else it is text."""
    if text in _WORDS:
        return _WORDS[text]
    words = text.replace("True", "true").replace("False", "false")
    try:
        return frozen(json.loads(_OPEN_POINT.sub(r"\1.0", words)))
    except (ValueError, RecursionError):
        return text


def frozen(value: object) -> Plain:
    """Return a value of JSON as one that cannot change; none of it are records."""
    if isinstance(value, list):
        return tuple(map(frozen, listed(cast("object", value))))
    if isinstance(value, str):
        return _WORDS.get(value, value)
    return value if isinstance(value, int | float) else None
