"""Kineto traces of ops with their arguments, made up for their prices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
from tests.traces.synthetic import Made

MIB = 1 << 20


@attrs.define
class TracedOps:
    """A trace of ops one after another, on a V100.

    Attributes:
        made: The trace.
        at_us: When the next op begins.

    """

    made: Made = attrs.field(factory=Made)
    at_us: float = 0.0

    def op(
        self,
        name: str,
        dims: Sequence[object],
        kernels: Sequence[tuple[str, float]],
        *,
        types: Sequence[str] = (),
        values: Sequence[str] | None = None,
    ) -> None:
        """Add an op and its kernels, by name and microseconds."""
        begin_us = self.at_us
        self.at_us += 1000
        arguments: dict[str, object] = {"Input Dims": [*dims]}
        arguments["Input type"] = [*types] or ["float"] * len(dims)
        if values is not None:
            arguments["Concrete Inputs"] = [*values]
        self.made.add("cpu_op", name, begin_us, 100)
        self.made.events[-1]["args"] |= arguments
        start_us = begin_us + 20.0
        for number, (kernel, dur_us) in enumerate(kernels):
            self.made.launch(begin_us + 10 * number, 5, start_us, dur_us, name=kernel)
            shape = {"grid": [640, 1, 1], "block": [256, 1, 1]}
            self.made.events[-1]["args"] |= {**shape, "registers per thread": 64}
            start_us += dur_us + 1

    def gemm(self, size: int = 1024, dur_us: float = 200) -> None:
        """Add a GEMM of square matrices."""
        self.op("aten::mm", [[size, size]] * 2, [("volta_sgemm_128x64_nn", dur_us)])

    def copy(self, dur_us: float = 90) -> None:
        """Add a copy of a MiB from pinned memory."""
        name = "Memcpy HtoD (Pinned -> Device)"
        self.made.copy(self.at_us, 5, self.at_us + 10, dur_us, name=name, size=MIB)
        self.at_us += 1000

    def collective(
        self, dur_us: float = 500, *, elements: int = 0, ranks: int = 8
    ) -> None:
        """Add an all-reduce; newer profilers say of how many numbers, among whom."""
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        self.made.launch(self.at_us, 5, self.at_us + 10, dur_us, name=name)
        self.at_us += max(1000, 2 * dur_us)
        if elements:
            self.made.events[-1]["args"] |= {
                "Collective name": "allreduce",
                "In msg nelems": elements,
                "Out msg nelems": elements,
                "Group size": ranks,
                "dtype": "Float",
            }

    def write(self, path: Path, **header: object) -> Path:
        """Write the trace; the host waits for the device at its end."""
        self.made.call("cudaDeviceSynchronize", self.at_us, 5)
        return self.made.write(path, **header)
