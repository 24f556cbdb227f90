"""What PyTorch says of its ops, and its types in perfc's words."""

from __future__ import annotations

import functools
from typing import Any

import attrs
import torch

from perfc.frontends.aten import Argument, AtenTensor, Ref, call_label
from perfc.frontends.torch.internals import schema
from perfc.ir import DTYPES, DType, TensorType
from perfc.ir.support import UnsupportedModelError
from perfc.ir.types import MemorySpace

_DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e4m3fnuz: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e5m2fnuz: "f8e5m2",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


def dtype_of(dtype: torch.dtype) -> DType:
    """Return perfc's element type."""
    name = _DTYPES.get(dtype)
    if name is None:
        msg = f"perfc has no element type for {dtype}"
        raise UnsupportedModelError(msg)
    return DTYPES[name]


@functools.cache
def _type(dtype: torch.dtype, shape: torch.Size, on_host: bool) -> TensorType:
    space = MemorySpace.HOST if on_host else MemorySpace.DEVICE
    return TensorType(dtype_of(dtype), tuple(shape), space)


def tensor_type(tensor: torch.Tensor) -> TensorType:
    """Return the type of a tensor; what is on `cpu` is on the host."""
    return _type(tensor.dtype, tensor.shape, tensor.is_cpu)


def described(name: str, tensor: torch.Tensor) -> AtenTensor:
    """Describe a tensor under a name; of a sparse one the dense shape."""
    dense = tensor.layout is torch.strided
    strides = tensor.stride() if dense else None
    return AtenTensor(name, tensor_type(tensor), strides)


@attrs.frozen(eq=False)
class Schema:
    """One op.

    Attributes:
        target: Namespace, name and overload: `aten.addmm.default`.
        stem: What its results are called: `addmm`.
        arguments: Names of its arguments, in order.
        returns: Whether it returns anything.
        writes: Whether it writes arguments.

    """

    target: str
    stem: str
    arguments: tuple[str, ...]
    returns: bool
    writes: bool

    @property
    def label(self) -> str:
        """Name of the op in PyTorch's profiler: `aten::addmm`."""
        return call_label(self.target)


@functools.cache
def schema_of(func: Any) -> Schema:
    """Look an op up."""
    found = schema(func)
    namespace, _, name = found.name.partition("::")
    overload = found.overload_name or "default"
    return Schema(
        f"{namespace}.{name}.{overload}",
        name.strip("_") or name,
        tuple(argument.name for argument in found.arguments),
        bool(found.returns),
        found.is_mutable,
    )


def plain(value: Any) -> Argument:
    """Write an argument that is no tensor in perfc's words."""
    if value is None or isinstance(value, bool | int | float | complex | str | Ref):
        return value
    if isinstance(value, torch.dtype):
        return dtype_of(value)
    return str(value)
