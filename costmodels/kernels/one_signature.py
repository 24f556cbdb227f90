"""The signature of one kernel as formulas read it: in numbers, without arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from perfc.costmodels.kernels.signatures import number_without, text_without
from perfc.costmodels.machine import Target
from perfc.ir import Kernel

T = TypeVar("T")

_NUMBERS = (int, float)


class OneSignature:
    """Signature of one kernel, as `Signatures`; what formulas read is read off once."""

    __slots__ = (
        *("_get", "_once", "bytes", "bytes_read", "bytes_written"),
        *("dtype", "flops", "kernel", "math", "op"),
    )

    def __init__(self, kernel: Kernel) -> None:
        """Read a kernel's."""
        work = kernel.work
        self.kernel = kernel
        self.op = kernel.op
        self.dtype = kernel.dtype
        self.math = kernel.math
        self.flops = float(work.flops)
        self.bytes_read = float(work.bytes_read)
        self.bytes_written = float(work.bytes_written)
        self.bytes = self.bytes_read + self.bytes_written
        self._get = kernel.params.reader
        self._once: dict[object, Any] = {}

    def once(self, make: Callable[[OneSignature], T]) -> T:
        """Return *make* of this kernel, worked out when first asked for."""
        # Most are asked for first: an exception would take longer than looking twice.
        once = self._once
        if make not in once:
            once[make] = make(self)
        found: T = once[make]
        return found

    def param(self, name: str, default: float | None = None) -> float:
        """Return a numeric parameter; else *default*, if not as declared."""
        value = self._get(name)
        if isinstance(value, _NUMBERS):
            return float(value)
        return number_without(self.op, name) if default is None else default

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter that is a word; else *default*, if not as declared."""
        value = self._get(name)
        if isinstance(value, str):
            return value
        return text_without(self.op, name) if default is None else default

    def given(self, name: str) -> bool:
        """Whether there is a parameter, not none, zero, false or empty."""
        return bool(self._get(name, None))

    def runs_on(self, target: Target) -> bool:
        """Whether a target has the math mode."""
        return self.math in target.device.flops_per_s

    def peak_flops_per_s(self, target: Target) -> float:
        """Peak rate of a target in the math mode, FLOP/s."""
        return target.device.peak(self.math)

    def limit_flops_per_s(self, target: Target) -> float:
        """Return the peak rate in FLOP/s, but no limit of what does not compute."""
        return target.device.peak(self.math) if self.flops > 0 else math.inf
