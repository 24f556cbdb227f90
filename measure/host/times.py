"""T1 to T5 of every op from a Kineto trace, the profiler's own time taken out.

The definitions are those of Lin et al. (arXiv 2201.07821), as in `perfc analyze`:
T1 between two ops, T2 from the start of an op to its first launch, T3 from its last
launch to its end, T4 in the launch call, T5 between two launches of an op; an op that
launches nothing is T0 as a whole. Ops are the outermost ones of PyTorch; what autograd
puts around them is no op. A CPU launches nothing, and its rows of kernels are times of
whole calls: there are T1, and T0 of the ops that compute nothing.

Each recorded event makes the host slower, one half where it starts and one where it
ends; of the half at an edge of what is measured, half counts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import attrs

from perfc.measure.profiled import STEP, Trace

Key: TypeAlias = tuple[str, str]
"""Type, and op or call; the op is empty where it does not matter."""

_HOST = frozenset({"cpu_op", "cuda_runtime", "cuda_driver", "user_annotation"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
_NODE = "autograd::engine::evaluate_function"
_LAUNCHES = ("LaunchKernel", "MemcpyAsync", "MemsetAsync", "GraphLaunch")
_WAITS = ("Synchronize", "cudaMemcpy", "hipMemcpy", "Malloc", "Free")
"""Parts of the names of calls: of launches, and of what a host waits in."""

NO_KERNEL = frozenset(
    f"aten::{name}"
    for name in (
        *("view", "t", "transpose", "permute", "expand", "as_strided", "slice"),
        *("select", "unsqueeze", "squeeze", "detach", "split", "alias", "unbind"),
        *("empty", "empty_like", "empty_strided", "resize_", "_reshape_alias"),
        *("narrow", "chunk", "expand_as", "view_as", "_unsafe_view"),
    )
)
"""Ops that compute nothing on a CPU."""


@attrs.frozen
class _Event:
    """One event of the host, in microseconds."""

    name: str
    category: str
    start: float
    end: float

    @property
    def is_op(self) -> bool:
        return self.category == "cpu_op" and is_library(self.name)

    def is_call(self, parts: Sequence[str]) -> bool:
        return self.category in _CALLS and any(part in self.name for part in parts)

    @property
    def is_step(self) -> bool:
        return self.category == "user_annotation" and self.name.startswith(STEP)

    @property
    def launches(self) -> bool:
        return self.is_call(_LAUNCHES)

    @property
    def waits(self) -> bool:
        return self.is_call(_WAITS) and not self.launches


def is_library(name: str) -> bool:
    """Whether a name is an op's (`aten::mm`), not a node of autograd or a mark."""
    return "::" in name and not name.startswith(("autograd::", "torch::"))


def host_events(trace: Trace) -> int:
    """Return how many events of the host a trace has."""
    return sum(1 for event in trace.events if _is_host(event))


def _is_host(event: Mapping[str, Any]) -> bool:
    return event.get("ph") == "X" and event.get("cat") in _HOST


def host_times(trace: Trace, tax_us: float, *, cuda: bool) -> dict[Key, list[float]]:
    """Return all samples by type and op, in microseconds, none below 0."""
    reader = _Reader(tax_us, cuda)
    reader.read(trace)
    return reader.samples


class _Spans:
    """Events that do not overlap."""

    def __init__(self, events: Sequence[_Event]) -> None:
        self._events = sorted(events, key=lambda event: event.start)
        self._starts = [event.start for event in self._events]

    def around(self, event: _Event) -> _Event | None:
        """Return the one that an event begins in."""
        index = bisect_right(self._starts, event.start) - 1
        found = self._events[index] if index >= 0 else None
        return found if found is not None and event.start < found.end else None


class _Thread:
    """The events of one thread, in order of their starts."""

    def __init__(self, events: Sequence[_Event]) -> None:
        self.events = sorted(events, key=lambda event: (event.start, -event.end))
        self.starts = [event.start for event in self.events]
        self.edges = sorted([*self.starts, *(event.end for event in events)])
        self.nodes = _Spans([e for e in self.events if e.name.startswith(_NODE)])

    def outermost(self) -> Iterator[_Event]:
        """Yield the ops that are in no other op."""
        reached = float("-inf")
        for event in self.events:
            if event.is_op and event.start >= reached:
                reached = event.end
                yield event

    def within(self, start: float, end: float) -> list[_Event]:
        """Return the events that start in a span, and end in it."""
        first, last = bisect_left(self.starts, start), bisect_right(self.starts, end)
        return [event for event in self.events[first:last] if event.end <= end]


@attrs.frozen(eq=False)
class _Item:
    """An outermost op, its thread, its iteration, and whether autograd runs it."""

    op: _Event
    thread: _Thread
    step: _Event | None
    backward: bool


@attrs.define
class _Reader:
    """Collects samples from the threads of a trace."""

    tax_us: float
    cuda: bool
    samples: dict[Key, list[float]] = attrs.field(
        factory=lambda: defaultdict[Key, list[float]](list)
    )

    def read(self, trace: Trace) -> None:
        """Read every thread, and what passes from one to another."""
        by_thread: dict[object, list[_Event]] = defaultdict(list)
        for event in trace.events:
            if _is_host(event):
                start = float(event["ts"])
                found = _Event(
                    str(event["name"]),
                    str(event["cat"]),
                    start,
                    start + float(event["dur"]),
                )
                by_thread[event["pid"], event["tid"]].append(found)
        threads = [_Thread(events) for events in by_thread.values()]
        steps = _Spans([e for t in threads for e in t.events if e.is_step])
        items = [
            _Item(op, thread, steps.around(op), thread.nodes.around(op) is not None)
            for thread in threads
            for op in thread.outermost()
        ]
        for item in items:
            self._op(item.thread, item.op)
        for one, other in pairwise(sorted(items, key=lambda item: item.op.start)):
            if one.step is other.step is not None:
                self._between(one, other)

    def _add(self, key: Key, thread: _Thread, start: float, end: float) -> None:
        """Add a span between two edges of events, without what profiling took."""
        edges = thread.edges
        inside = max(bisect_left(edges, end) - bisect_right(edges, start), 0)
        us = end - start - self.tax_us * (inside + 1) / 2
        self.samples[key].append(max(us, 0.0))

    def _op(self, thread: _Thread, op: _Event) -> None:
        inner = [e for e in thread.within(op.start, op.end) if e is not op]
        if any(event.waits for event in inner):
            return
        calls = [e for e in inner if e.launches] if self.cuda else []
        if not calls:
            if self.cuda or op.name in NO_KERNEL:
                self._add(("T0", op.name), thread, op.start, op.end)
            return
        self._add(("T2", op.name), thread, op.start, calls[0].start)
        self._add(("T3", op.name), thread, calls[-1].end, op.end)
        for one, other in pairwise(calls):
            self._add(("T5", op.name), thread, one.end, max(other.start, one.end))
        for call in calls:
            self._add(("T4", call.name), thread, call.start, call.end)

    def _between(self, one: _Item, other: _Item) -> None:
        """Add T1, or the hand-over where the backward pass begins or ends."""
        start, end = one.op.end, other.op.start
        threads = {id(item.thread): item.thread for item in (one, other)}
        if any(e.waits for t in threads.values() for e in t.within(start, end)):
            return
        if one.backward is other.backward and one.thread is other.thread:
            self._add(("T1", ""), one.thread, start, end)
        elif one.backward is not other.backward:
            key = ("autograd", "" if other.backward else "end")
            self._add(key, other.thread, start, end)
