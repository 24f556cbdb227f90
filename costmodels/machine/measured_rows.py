"""Kernels that were timed on a machine itself: the table of them in its profile."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import attrs

from perfc.costmodels.constants import constants
from perfc.ir import AttrValue, Kernel, Record

REPEATABILITY = constants("kernels").number("sigma_repeatability")
"""Relative scatter of a row that is measured again on the same machine."""

ANOTHER_DAY = constants("kernels").number("sigma_another_day")
"""What all rows of a machine may be off together: clocks, heat, a driver."""


class Signature(NamedTuple):
    """What decides a kernel's time on one machine.

    Attributes:
        op: Canonical name.
        dtype: What its tensors are stored in.
        math: Math mode.
        params: Parameters, without those that go without saying.

    """

    op: str
    dtype: str
    math: str
    params: Record


@attrs.frozen
class MeasuredKernel:
    """A kernel that was timed.

    Attributes:
        signature: Which.
        seconds: What it took alone: gap and dispatch are taken off. The median, where
            several rows are of one kernel.
        sigma: How uncertain that is, relative, by the rows' own spread and by what was
            taken off.
        n: How often it was timed, in all rows.
        timing: How, as in measured rows.
        source: Where the rows come from.
        repeated: Whether it was timed again and again on the same operands.

    """

    signature: Signature
    seconds: float
    sigma: float
    n: int
    timing: str
    source: str
    repeated: bool = False

    @property
    def own_sigma(self) -> float:
        """How far the same kernel may be off it when it runs again."""
        return math.hypot(self.sigma, REPEATABILITY)


@attrs.frozen
class MeasuredKernels:
    """All of them, by signature."""

    by_signature: Mapping[Signature, MeasuredKernel] = attrs.field(
        factory=dict[Signature, MeasuredKernel], hash=False
    )

    @classmethod
    def of(cls, kernels: Iterable[MeasuredKernel]) -> MeasuredKernels:
        """Index *kernels*; each has a signature of its own."""
        return cls({kernel.signature: kernel for kernel in kernels})

    def __bool__(self) -> bool:
        return bool(self.by_signature)

    def __len__(self) -> int:
        return len(self.by_signature)

    @functools.cached_property
    def ops(self) -> frozenset[str]:
        """The ops that occur."""
        return frozenset(signature.op for signature in self.by_signature)

    def find(self, signature: Signature) -> MeasuredKernel | None:
        """Return the kernel of that signature, if it was timed."""
        return self.by_signature.get(signature)


UNSAID: Mapping[str, AttrValue] = {
    "b": 1,
    "groups": 1,
    "layout": "nn",
    "mode": "sum",
    "phase": "forward",
    "popularity": "uniform",
}
"""Values of parameters that mean the same as none; so do false and nothing."""

_BACKWARD = "backward"


def signature_of(kernel: Kernel, apart: frozenset[str]) -> Signature:
    """Return the signature deciding *kernel*'s time, but for parameters in *apart*."""
    params = {
        name: value
        for name, value in kernel.params.items()
        if name not in apart
        and value is not None
        and value is not False
        and (name not in UNSAID or value != UNSAID[name])
    }
    if kernel.op == "softmax" and params.get("kind") == _BACKWARD:
        params["phase"] = params.pop("kind")  # as measured rows have it
    return Signature(kernel.op, kernel.dtype, kernel.math, Record(params))
