"""One shape of one op, and what an op must say to be measured."""

from __future__ import annotations

import functools
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import attrs
import torch

from perfc import measurements
from perfc.ir import Kernel, Record, Work
from perfc.measure.call_work import work_of_call
from perfc.measure.design import Point, Space
from perfc.measure.device import Device
from perfc.measure.kernel_table import workload_shapes

DTYPES_OF_TENSORS: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "fp32": torch.float32,
        "tf32": torch.float32,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "fp8": torch.float8_e4m3fn,
        "int64": torch.int64,
        "bool": torch.bool,
    }
)
"""Types of tensors, by the dtype of rows."""

_PLAIN = frozenset({"int64", "bool"})
"""Dtypes that every device has."""

Call: TypeAlias = Callable[[], object]
"""Runs an op once on its own operands; what it returns may be forgotten."""

_SHOWN = 160
"""Characters: a bag may have dozens of tables."""

_POOL = 1 << 22
"""Random numbers that are drawn; larger tensors repeat them."""


@attrs.frozen(cache_hash=True)
class Case:
    """One shape of one op.

    Attributes:
        op: Canonical name.
        dtype: What it computes in.
        params: Its sizes, as in measured rows.

    """

    op: str
    dtype: str
    params: Record

    @property
    def split(self) -> str:
        """Whether the shape is one to fit or one to test with.

        Those of the planned models are tested with, whatever suite has them.
        """
        if measurements.shape_of(self.op, self.params) in workload_shapes():
            return measurements.TEST
        return measurements.split_of(self.op, self.params)

    @functools.cached_property
    def work(self) -> Work:
        """The least that it can do."""
        of_call = work_of_call(
            self.op, self.params, int(measurements.bytes_of(self.dtype))
        )
        if of_call is not None:
            return of_call
        return self.kernel.work

    @property
    def kernel(self) -> Kernel:
        """Its signature, as that of a measured row."""
        row = measurements.Measurement(
            target="",
            op=self.op,
            dtype=self.dtype,
            params=self.params,
            latency_us=0.0,
            timing="event",
            source="",
        )
        return measurements.kernel_of(row)

    def __str__(self) -> str:
        return textwrap.shorten(f"{self.op} {self.dtype} {self.params}", _SHOWN)


@contextmanager
def math_of(dtype: str) -> Generator[None]:
    """Compute fp32 GEMMs and convolutions in TF32 if *dtype* is tf32, else not."""
    matmul = torch.get_float32_matmul_precision()
    cudnn: Any = torch.backends.cudnn
    allowed = cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    cudnn.allow_tf32 = dtype == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        cudnn.allow_tf32 = allowed


class Tensors:
    """Makes operands of random numbers: zeros take less power, and less time."""

    def __init__(self, device: Device) -> None:
        """Draw the random numbers, the same every time."""
        self.kind = device.kind
        self._generator = torch.Generator(device.kind).manual_seed(0)
        self._pool = torch.randn(
            _POOL, generator=self._generator, device=device.kind, dtype=torch.float32
        )

    def random(self, dtype: str, *shape: int) -> torch.Tensor:
        """Return normal random numbers."""
        result = torch.empty(shape, dtype=DTYPES_OF_TENSORS[dtype], device=self.kind)
        flat = result.view(-1)
        for start in range(0, flat.numel(), _POOL):
            part = flat[start : start + _POOL]
            part.copy_(self._pool[: part.numel()])
        return result

    def integers(self, high: int, count: int) -> torch.Tensor:
        """Return *count* integers from 0 to *high*, exclusive, int64."""
        return torch.randint(
            high, (count,), generator=self._generator, device=self.kind
        )

    def shares(self, count: int) -> torch.Tensor:
        """Return *count* numbers from 0 to 1, exclusive, fp64."""
        return torch.rand(
            count, generator=self._generator, device=self.kind, dtype=torch.float64
        )


class Family(ABC):
    """An op, or one way to call it, as it is measured. Stateless.

    Attributes:
        op: Canonical name.
        turns: How many of its shapes come in one round of all families.

    """

    op: ClassVar[str]
    turns: ClassVar[int]

    @abstractmethod
    def space(self, device: Device) -> Space:
        """Return the space to choose from on a device; empty if it has no such op."""

    @abstractmethod
    def prepare(self, case: Case, tensors: Tensors) -> Call:
        """Make one set of operands, and return the call that works on it."""

    def case(self, point: Point) -> Case | None:
        """Return the case of a point; None where its values do not go together."""
        params = {name: value for name, value in point.items() if name != "dtype"}
        return Case(self.op, str(point["dtype"]), Record(params))

    def takes(self, case: Case) -> bool:
        """Whether it can run a case of its op: some ops have several families."""
        return True

    def runs_on(self, case: Case, device: Device) -> bool:
        """Whether a device computes in the case's dtype, fast enough to be measured."""
        return case.dtype in {*device.dtypes, *_PLAIN}

    def memory_bytes(self, case: Case) -> int:
        """Return the bytes that one call needs, operands and results."""
        return int(case.work.bytes)

    def capturable(self, case: Case) -> bool:
        """Whether a CUDA graph can hold the call: it must not wait for the device."""
        return True


def without(dtypes: tuple[str, ...], *left_out: str) -> tuple[str, ...]:
    """Return the dtypes but some."""
    return tuple(dtype for dtype in dtypes if dtype not in left_out)
