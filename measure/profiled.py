"""Iterations under PyTorch's profiler: the Kineto trace, and what it tells."""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from perfc.ir import PerfcError
from perfc.ir.support import US
from perfc.measure.device import Device
from perfc.traces import covered

DEVICE_WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of what a device does."""

STEP = "ProfilerStep#"
"""How iterations are marked, as by PyTorch's own schedule."""

_WARM_UP = 2
"""Iterations under the profiler before the window: on a GPU the first launches that it
sees take milliseconds, and it starts up while nothing is recorded."""


@attrs.frozen(eq=False)
class Trace:
    """A Kineto trace of some iterations.

    Attributes:
        text: As PyTorch writes it, JSON.
        events: Its events.
        walls_us: How long each iteration took, profiler included.

    """

    text: str
    events: Sequence[Mapping[str, Any]]
    walls_us: Sequence[float]

    def active_us(self) -> float:
        """Return how long the device was busy per iteration: the union of its work."""
        spans = (
            (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
            for event in self.events
            if event.get("cat") in DEVICE_WORK and event.get("ph") == "X"
        )
        return covered(spans) / len(self.walls_us)


def trace_of(
    iteration: Callable[[], None],
    device: Device,
    count: int,
    *,
    shapes: bool = True,
    memory: bool = False,
) -> Trace:
    """Profile *count* iterations, each with the wait at its end."""
    gpu = [ProfilerActivity.CUDA] if device.is_cuda else []
    profiler = profile(
        activities=[ProfilerActivity.CPU, *gpu],
        record_shapes=shapes,
        profile_memory=memory,
        acc_events=False,  # PyTorch's own list of events takes seconds, unread
    )
    walls_us: list[float] = []
    with recording(profiler, iteration, device):
        for number in range(count):
            start = time.perf_counter()
            with record_function(f"{STEP}{number}"):
                iteration()
                device.synchronize()
            walls_us.append((time.perf_counter() - start) * US)
    text = _exported(profiler)
    return Trace(text, json.loads(text)["traceEvents"], walls_us)


@contextmanager
def recording(
    profiler: profile, call: Callable[[], object], device: Device
) -> Generator[None]:
    """Let a profiler start up, the device at work, and record what follows."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that events of other cycles are gone
            profiler.prepare_trace()
        for _ in range(_WARM_UP):
            call()
        device.synchronize()
        profiler.start_trace()
    except BaseException:
        # Let a profiler that was not started, perhaps, run for nothing.
        # Kineto refuses to be prepared again, for as long as the process lives, before
        # what was prepared has been started and stopped (PyTorch 2.11).
        for step in (profiler.start_trace, profiler.stop_trace):
            with suppress(Exception):
                step()
        raise
    try:
        yield
    finally:
        profiler.stop_trace()


def _exported(profiler: profile) -> str:
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            return path.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"cannot write a trace: {error.strerror or error}"
        raise PerfcError(msg) from None


def allocated_peak(
    iteration: Callable[[], None], device: Device, standing: Sequence[Tensor]
) -> int:
    """Return the most bytes of tensors on a CPU in an iteration.

    Counted by the hooks of PyTorch's allocator, on top of what stands between two
    iterations.
    """
    trace = trace_of(iteration, device, 1, shapes=False, memory=True)
    live = peak = 0
    for event in sorted(trace.events, key=lambda event: float(event.get("ts", 0))):
        if event.get("name") == "[memory]":
            live += int(event["args"]["Bytes"])
            peak = max(peak, live)
    storages = {id(t.untyped_storage()): t.untyped_storage() for t in standing}
    return peak + sum(storage.nbytes() for storage in storages.values())
