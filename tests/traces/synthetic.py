"""Traces made up event by event, as Kineto writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import attrs

MAIN, AUTOGRAD = 1, 2
PAGEABLE_D2H = "Memcpy DtoH (Device -> Pageable)"
PINNED_H2D = "Memcpy HtoD (Pinned -> Device)"
LAUNCHED = ("a", "b", "b", "c")


@attrs.define
class Made:
    """A trace that grows event by event; times in microseconds."""

    events: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])
    correlation: int = 0

    def add(
        self,
        category: str,
        name: str,
        start_us: float,
        dur_us: float,
        *,
        tid: object = MAIN,
        pid: int = 100,
        **args: object,
    ) -> None:
        """Add an event."""
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": start_us,
                "dur": dur_us,
                "args": args,
            }
        )

    def op(
        self, name: str, start_us: float, dur_us: float, *, tid: object = MAIN
    ) -> None:
        """Add an op."""
        self.add("cpu_op", name, start_us, dur_us, tid=tid)
        self.events[-1]["args"]["Input Dims"] = [[2, 3]]

    def call(
        self, name: str, start_us: float, dur_us: float, *, tid: object = MAIN
    ) -> int:
        """Add a runtime call; return its correlation."""
        self.correlation += 1
        self.add(
            "cuda_runtime",
            name,
            start_us,
            dur_us,
            tid=tid,
            correlation=self.correlation,
        )
        return self.correlation

    def work(
        self,
        correlation: int,
        start_us: float,
        dur_us: float,
        *,
        stream: int = 7,
        name: str = "gemm",
        category: str = "kernel",
        size: int = 0,
    ) -> None:
        """Add what a device did."""
        self.add(
            category,
            name,
            start_us,
            dur_us,
            pid=0,
            tid=stream,
            device=0,
            stream=stream,
            correlation=correlation,
            **({"bytes": size} if size else {}),
        )

    def launch(
        self,
        start_us: float,
        dur_us: float,
        work_us: float,
        work_dur_us: float,
        *,
        stream: int = 7,
        tid: object = MAIN,
        name: str = "gemm",
    ) -> int:
        """Add the launch of a kernel, and the kernel; return the correlation."""
        number = self.call("cudaLaunchKernel", start_us, dur_us, tid=tid)
        self.work(number, work_us, work_dur_us, stream=stream, name=name)
        return number

    def copy(
        self,
        start_us: float,
        dur_us: float,
        work_us: float,
        work_dur_us: float,
        *,
        stream: int = 7,
        name: str = PAGEABLE_D2H,
        size: int = 4,
    ) -> int:
        """Add a copy; return the correlation."""
        number = self.call("cudaMemcpyAsync", start_us, dur_us)
        self.work(
            number,
            work_us,
            work_dur_us,
            stream=stream,
            name=name,
            category="gpu_memcpy",
            size=size,
        )
        return number

    def label(
        self, name: str, start_us: float, dur_us: float, *, tid: object = MAIN
    ) -> None:
        """Add a label: a stretch of time that a user or PyTorch named."""
        self.add("user_annotation", name, start_us, dur_us, tid=tid)

    def document(self, **header: object) -> dict[str, Any]:
        """Return the trace."""
        properties = [{"id": 0, "name": "Tesla V100-SXM2-16GB"}]
        return {
            "schemaVersion": 1,
            "deviceProperties": properties,
            **header,
            "traceEvents": self.events,
        }

    def write(self, path: Path, **header: object) -> Path:
        """Write the trace, gzipped if the name says so."""
        text = json.dumps(self.document(**header)).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        return path


def kernels(made: Made, at_us: float, *names: str) -> None:
    """Add kernels, each by an op of its own, one every 10 us."""
    for number, name in enumerate(names):
        at = at_us + 10 * number
        made.op("aten::mm", at, 9)
        made.launch(at + 1, 5, at + 8, 3, name=name)


def loop(*bodies: tuple[str, ...], copy: bool) -> Made:
    """Make steps, each 200 us long, that begin with a copy or end with a wait."""
    made = Made()
    for number, body in enumerate(bodies):
        at_us = 200.0 * number
        if copy:
            made.copy(at_us, 5, at_us + 6, 2, name=PINNED_H2D)
        kernels(made, at_us + 10, *body)
        if not copy:
            made.call("cudaDeviceSynchronize", at_us + 100, 20)
    return made
