"""Value types. Frozen, hashable, compared by value."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any

import attrs

from perfc.ir.dims import Dim, Expr, ceil_div, evaluate, product, symbols_of
from perfc.ir.support import ParseError, VerifyError

MAX_RANK = 64
"""Tensors of more dimensions are a mistake."""

MAX_BYTES = 2**62
"""A tensor of this many bytes is a mistake: it overflows 64-bit addresses."""


class MathMode(enum.Enum):
    """What the arithmetic units compute in, apart from how tensors are stored.

    TF32 is a mode of fp32 storage; tensor-core fp16 is a mode of fp16 storage, and
    `fp16_vector` another, without tensor cores. `fp32_tensor` is full fp32 on matrix
    units, which AMD's have and NVIDIA's have not. The values are the names of the
    rates in target sheets.
    """

    FP64 = "fp64"
    FP64_TENSOR = "fp64_tensor"
    FP32 = "fp32"
    FP32_TENSOR = "fp32_tensor"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP16_VECTOR = "fp16_vector"
    BF16_VECTOR = "bf16_vector"
    FP8 = "fp8"
    NVFP4 = "nvfp4"
    INT8 = "int8"


class Granularity(enum.Enum):
    """How many elements share one scale."""

    ROW = "row"
    BLOCK = "block"


@attrs.frozen(cache_hash=True)
class Scaling:
    """Scale (and bias) values stored beside quantised elements.

    Attributes:
        granularity: One scale per row (last dimension) or per block of it.
        scale_bits: Bits of scale and bias together, per row or block.
        block: Elements per block; 0 for row-wise scaling.
        alignment: Bytes that a row is filled up to a multiple of.

    """

    granularity: Granularity
    scale_bits: int
    block: int = 0
    alignment: int = 1

    def __str__(self) -> str:
        block = str(self.block) if self.granularity is Granularity.BLOCK else ""
        aligned = f"a{self.alignment}" if self.alignment > 1 else ""
        return f"{self.granularity.value}{block}x{self.scale_bits}{aligned}"


@attrs.frozen(cache_hash=True)
class DType:
    """How one element is stored.

    Attributes:
        name: Spelling in perfc assembly, without scaling.
        bits: Bits per element, scales not included.
        kind: `float`, `int`, `uint` or `bool`.
        scaling: Scales stored beside the elements, if any.

    """

    name: str
    bits: int
    kind: str
    scaling: Scaling | None = None

    def __str__(self) -> str:
        return self.name if self.scaling is None else f"{self.name}.{self.scaling}"

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.kind == "float"

    def row_bytes(self, columns: Any) -> Any:  # noqa: ANN401
        """Bytes of one row of *columns* elements, with its scales, and aligned."""
        bits = columns * self.bits
        if self.scaling is not None:
            scales: Any = 1
            if self.scaling.granularity is Granularity.BLOCK:
                scales = ceil_div(columns, self.scaling.block)
            bits = ceil_div(bits, 8) * 8 + scales * self.scaling.scale_bits
            alignment = self.scaling.alignment
            if alignment > 1:
                return ceil_div(bits, 8 * alignment) * alignment
        return ceil_div(bits, 8)


F64 = DType("f64", 64, "float")
F32 = DType("f32", 32, "float")
F16 = DType("f16", 16, "float")
BF16 = DType("bf16", 16, "float")
F8E4M3 = DType("f8e4m3", 8, "float")
F8E5M2 = DType("f8e5m2", 8, "float")
F8E8M0 = DType("f8e8m0", 8, "float")
F6E2M3 = DType("f6e2m3", 6, "float")
F6E3M2 = DType("f6e3m2", 6, "float")
F4E2M1 = DType("f4e2m1", 4, "float")
I64 = DType("i64", 64, "int")
I32 = DType("i32", 32, "int")
I16 = DType("i16", 16, "int")
I8 = DType("i8", 8, "int")
I4 = DType("i4", 4, "int")
I2 = DType("i2", 2, "int")
U64 = DType("u64", 64, "uint")
U32 = DType("u32", 32, "uint")
U16 = DType("u16", 16, "uint")
U8 = DType("u8", 8, "uint")
U4 = DType("u4", 4, "uint")
U2 = DType("u2", 2, "uint")
BOOL = DType("bool", 8, "bool")
C64 = DType("c64", 64, "complex")
C128 = DType("c128", 128, "complex")
STRING = DType("string", 64, "string")

DTYPES: Mapping[str, DType] = {
    d.name: d
    for d in (
        *(F64, F32, F16, BF16, F8E4M3, F8E5M2, F8E8M0, F6E2M3, F6E3M2, F4E2M1),
        *(I64, I32, I16, I8, I4, I2, U64, U32, U16, U8, U4, U2),
        *(BOOL, C64, C128, STRING),
    )
}
"""Every element type by name."""

_SCALING = re.compile(
    r"(?:row|block([1-9][0-9]{0,8}))x([0-9]{1,9})(?:a([1-9][0-9]{0,5}))?"
)


def parse_dtype(text: str) -> DType:
    """Read `f32`, `i8.rowx64`, `u4.rowx32a16` or `f8e4m3.block128x32`."""
    name, dot, scaling = text.partition(".")
    if name not in DTYPES:
        msg = f"unknown element type {name[:40]!r}; known: {', '.join(DTYPES)}"
        raise ParseError(msg)
    if not dot:
        return DTYPES[name]
    if (match := _SCALING.fullmatch(scaling)) is None:
        msg = f"not a scaling: {scaling[:40]!r} (expected rowxBITS or blockNxBITS)"
        raise ParseError(msg)
    granularity = Granularity.BLOCK if match[1] else Granularity.ROW
    scale = Scaling(granularity, int(match[2]), int(match[1] or 0), int(match[3] or 1))
    return attrs.evolve(DTYPES[name], scaling=scale)


class MemorySpace(enum.Enum):
    """Memory that a tensor lives in."""

    DEVICE = "device"
    PINNED = "pinned"
    HOST = "host"


@attrs.frozen(cache_hash=True)
class TensorType:
    """A dense tensor: element type, shape (ints or symbols), memory space."""

    dtype: DType
    shape: tuple[Dim, ...]
    space: MemorySpace = MemorySpace.DEVICE

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numel(self) -> Any:  # noqa: ANN401
        """Number of elements: an int, or an expression."""
        return product(self.shape)

    @property
    def nbytes(self) -> Any:  # noqa: ANN401
        """Size in memory in bytes, scales included."""
        bits = self.dtype.bits
        if self.dtype.scaling is None and bits % 8 == 0:
            return self.numel * (bits // 8)
        if self.dtype.scaling is None:
            return ceil_div(self.numel * bits, 8)
        if not self.shape:
            return self.dtype.row_bytes(1)
        return product(self.shape[:-1]) * self.dtype.row_bytes(self.shape[-1])

    def symbols(self) -> frozenset[str]:
        """Names of the symbols in the shape."""
        return symbols_of(self.shape)

    def bind(self, bindings: Mapping[str, int]) -> TensorType:
        """Put numbers in place of the symbols."""
        if not any(isinstance(dim, Expr) for dim in self.shape):
            return self
        shape = tuple([evaluate(dim, bindings) for dim in self.shape])
        return TensorType(self.dtype, shape, self.space).checked()

    def checked(self) -> TensorType:
        """Return self if the known dimensions are sane."""
        numel = 1
        for dim in self.shape:
            if isinstance(dim, Expr):
                continue
            if dim < 0:
                msg = f"negative dimension in {self}"
                raise VerifyError(msg)
            numel *= dim
        if numel * self.dtype.bits > 8 * MAX_BYTES:
            msg = f"shape overflows: {self} has more than 2**62 bytes"
            raise VerifyError(msg)
        return self

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        if '"' not in dims:  # the names of symbols may hold spaces
            dims = dims.replace(" ", "")
        space = "" if self.space is MemorySpace.DEVICE else f"@{self.space.value}"
        return f"{self.dtype}[{dims}]{space}"
