"""How a call is timed: after a warm-up, again and again, on operands in turn.

On a GPU twice: as `event` by an event pair around one call on an idle device, with the
time of the call on the host beside it; as `graph` in the replay of a CUDA graph of many
calls. What no graph can hold is left to the profiler (`profiled_calls`). On a CPU,
where the call returns when its work is done, `event` is the time of the call.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

import attrs
import numpy as np
import torch

from perfc.ir.support import US
from perfc.measure.capture import capture_stream, captured
from perfc.measure.case import Call
from perfc.measure.clocks import Clock, ClockReader
from perfc.measure.device import Device

MIN_REPEATS, MAX_REPEATS = 5, 200
"""However long a call takes, and however short."""

_CPU_REPEATS = 2
"""The least on a CPU, in each of its rounds."""

_CPU_GAP_SECONDS = 30e-6
"""Between calls on a CPU, as in a model: threads that wait for longer than a few
microseconds take as long again to wake up."""

_WARM_UP = 3
"""Calls on a GPU beside those that made the operands ready."""

_GRAPH_US = 200.0
"""A replay is at least so long: its launch is a few microseconds of it."""

_MAX_NODES = 256
_REPLAYS = 11

_MOST_SECONDS = 0.3
"""A way of timing a case on a GPU ends then, however few repetitions there are: a
pageable copy of a gigabyte takes a third of that."""


@attrs.frozen
class Timed:
    """What one way of timing found, in microseconds per call.

    Attributes:
        timing: The way, as in measured rows.
        median_us: The median; of rounds, the mean of theirs.
        p10_us: Tenth percentile, of repetitions or of rounds.
        p90_us: Ninetieth percentile of them.
        n: Repetitions; of a graph, replays; rounds, if there were several.
        clock: The device's clock at the end.
        host_us: Median of what the call took on the host.
        kernel: Name of the only kernel, where the profiler saw but one.

    """

    timing: str
    median_us: float
    p10_us: float | None
    p90_us: float | None
    n: int
    clock: Clock
    host_us: float | None = None
    kernel: str = ""


def percentiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, the tenth and the ninetieth percentile."""
    middle, low, high = np.percentile(samples, (50, 10, 90)).tolist()
    return middle, low, high


_WILD = 3.0
"""Times as long as a quicker round from which on another was disturbed."""

_QUICKER = 0.25
"""Share of the rounds that are quicker than the one that others are compared with."""


def mean_of(rounds: Sequence[Timed]) -> Timed:
    """Return the time that one way of timing found in some rounds, seconds apart.

    The mean of the medians: where neighbours slow a machine for seconds, it varies
    less than any other middle of them, and is what a model meets that runs for longer.
    The percentiles are those of the medians, as far as the mean where a disturbed round
    takes it past them, and `n` is how many medians there are. Rounds
    that took thrice as long as the quicker ones were disturbed, and do not count: where
    other programs wait for the same cores, that may be most of them.
    """
    first, *others = rounds
    if not others:
        return first
    medians_us = np.array([timed.median_us for timed in rounds])
    medians_us = medians_us[medians_us <= _WILD * np.quantile(medians_us, _QUICKER)]
    _, low_us, high_us = percentiles(medians_us.tolist())
    mean_us = float(medians_us.mean())
    return attrs.evolve(
        first,
        median_us=mean_us,
        p10_us=min(low_us, mean_us),
        p90_us=max(high_us, mean_us),
        n=len(medians_us),
    )


class Timer:
    """Times calls on one device."""

    def __init__(self, device: Device, seconds: float) -> None:
        """Time each call for about *seconds* in each way."""
        self.device = device
        self.seconds = seconds
        self._clocks = ClockReader(device)

    def clock(self) -> Clock:
        """Return the clock now."""
        return self._clocks.read()

    def time(self, calls: Sequence[Call], *, capturable: bool) -> list[Timed]:
        """Time the same work on several sets of operands, in turn."""
        call = in_turn(calls)
        # Call some times; on a CPU, that did other things, on each set if time allows.
        # Operands are then as far away as they are when they are timed.
        sets = len(calls)
        end = time.perf_counter() + self.seconds
        for number in range(_WARM_UP if self.device.is_cuda else sets):
            if number and not self.device.is_cuda and time.perf_counter() > end:
                break
            call()
        self.device.synchronize()
        gc.disable()
        try:
            if not self.device.is_cuda:
                return [self._by_clock(call)]
            return self._on_gpu(call, len(calls), capturable=capturable)
        finally:
            gc.enable()

    def _on_gpu(self, call: Call, sets: int, *, capturable: bool) -> list[Timed]:
        first = self._by_events(call)
        if capturable:
            try:
                return [first, self._by_graph(call, first.median_us, sets)]
            except RuntimeError:  # this version's call waits for the device after all
                torch.cuda.synchronize()
        return [first]

    def _repeat(self, once: Callable[[], None], most: int = MAX_REPEATS) -> None:
        """Do something again and again, within the bounds, for the time there is."""
        least = MIN_REPEATS if self.device.is_cuda else _CPU_REPEATS
        begin = time.perf_counter()
        for number in range(most):
            spent = time.perf_counter() - begin
            if number >= least and spent > self.seconds:
                return
            if number and spent > _MOST_SECONDS and self.device.is_cuda:
                return
            once()

    def _timed(
        self, timing: str, samples_us: Sequence[float], host_us: float | None = None
    ) -> Timed:
        clock = self._clocks.read()
        return Timed(timing, *percentiles(samples_us), len(samples_us), clock, host_us)

    def _by_clock(self, call: Call) -> Timed:
        samples: list[float] = []

        def once() -> None:
            # Keep this thread busy for a while.
            end = time.perf_counter() + _CPU_GAP_SECONDS
            while time.perf_counter() < end:
                pass
            samples.append(_seconds_of(call) * US)

        self._repeat(once)
        return self._timed("event", samples)

    def _by_events(self, call: Call) -> Timed:
        samples: list[float] = []
        host: list[float] = []

        def once() -> None:
            torch.cuda.synchronize()
            samples.append(_device_us(lambda: host.append(_seconds_of(call) * US)))

        self._repeat(once)
        return self._timed("event", samples, percentiles(host)[0])

    def _by_graph(self, call: Call, estimate_us: float, sets: int) -> Timed:
        """Capture many calls, each set of operands at least once, and replay them."""
        nodes = min(max(int(_GRAPH_US / max(estimate_us, 1.0)), sets), _MAX_NODES)
        # Capture calls, each library warm on the stream that is captured.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(capture_stream()):
            call()
            torch.cuda.synchronize()
        with captured(graph):
            for _ in range(nodes):
                call()
        graph.replay()
        torch.cuda.synchronize()
        samples: list[float] = []
        self._repeat(lambda: samples.append(_device_us(graph.replay) / nodes), _REPLAYS)
        timed = self._timed("graph", samples)
        graph.reset()
        if torch.cuda.memory_reserved() > self.device.memory_bytes // 2:
            torch.cuda.empty_cache()  # a graph's memory is not used again
        return timed


def in_turn(calls: Sequence[Call]) -> Callable[[], None]:
    """Return a call that makes one of *calls*, the next one every time."""
    following = 0

    def call() -> None:
        nonlocal following
        calls[following]()
        following = (following + 1) % len(calls)

    return call


def _seconds_of(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _device_us(enqueue: Callable[[], None]) -> float:
    """Return the time between two events around what is enqueued, and wait for it."""
    start, end = _event(), _event()
    start.record()
    enqueue()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
