"""Kineto traces of PyTorch's profiler, CUDA and ROCm, of 2021 and later."""

from __future__ import annotations

import marshal
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, cast

import attrs

from perfc.ir import Diagnostic, Kernel
from perfc.ir.support import Level
from perfc.traces.clock import skew_us
from perfc.traces.collective_facts import LABEL, stated_collective
from perfc.traces.events import (
    LOADER,
    NOWHERE,
    DeviceKind,
    DeviceWork,
    Frame,
    HostOp,
    Place,
    RuntimeCall,
    Shape,
    Step,
    Stream,
    SyncRecord,
    Thread,
    Timed,
    TooManyEventsError,
    Trace,
    TraceError,
    delay,
)
from perfc.traces.inputs import RawInputs
from perfc.traces.json_stream import EventFile
from perfc.traces.kineto_fields import (
    Event,
    args_of,
    base_us,
    devices_of,
    identity_of,
    inputs_of,
    multiprocessors_of,
    name_of,
    optional_number,
    plain_text,
    record_of,
    shape_of,
    span_of,
    stream_of,
    thread_of,
    whole_number,
)
from perfc.traces.places import frame_name, place_ops, stated_place
from perfc.traces.stated_kernels import SIGNATURE, StatedKernels
from perfc.traces.step_window import HOST_CATEGORIES, STEP, Window
from perfc.traces.told_steps import told_steps

_DEVICE = {
    "kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY,
    "memcpy": DeviceKind.COPY,
    "gpu_memset": DeviceKind.MEMSET,
    "memset": DeviceKind.MEMSET,
}
_LABEL = re.compile(
    r"ProfilerStep|Optimizer\.|DistributedDataParallel\.|## |nn\.Module"
)
"""Names of ops that only mark a stretch of time: `record_function` wrote them, which
older profilers do not tell from ops."""


def read_trace(
    path: str | Path,
    window: Window | None = None,
    progress: Callable[[float], None] | None = None,
    most_events: int | None = None,
) -> Trace:
    """Read a Kineto trace, `.json` or `.json.gz`.

    Of the file one piece at a time is held, and of its events those that tell of ops,
    runtime calls and device work; names, shapes and arguments that are equal are kept
    once.

    Args:
        path: The file.
        window: What to keep of it: ops and calls in it, and the work they issued; None
            for everything.
        progress: Is told from time to time which part of the file has been read.
        most_events: How many events to keep at most, each of some 0.7 KB when the
            trace is replayed; None for all.

    """
    file = EventFile(Path(path), progress=progress)
    reading = _Reading(window)
    for event in file.events():
        reading.add(event)
        if most_events is not None and reading.kept > most_events:
            msg = f"{path}: more than {most_events:,} events to keep"
            raise TooManyEventsError(msg)
    return reading.trace(str(path), file.header)


@attrs.define(eq=False)
class _Reading:
    """Sorts events into ops, calls and device work."""

    window: Window | None = None
    ops: list[HostOp] = attrs.field(factory=list[HostOp])
    frames: list[Frame] = attrs.field(factory=list[Frame])
    calls: list[RuntimeCall] = attrs.field(factory=list[RuntimeCall])
    works: list[DeviceWork] = attrs.field(factory=list[DeviceWork])
    syncs: dict[int, SyncRecord] = attrs.field(factory=dict[int, SyncRecord])
    steps: list[Step] = attrs.field(factory=list[Step])
    kept: int = 0
    categories: Counter[str] = attrs.field(factory=Counter[str])
    problems: Counter[str] = attrs.field(factory=Counter[str])
    _kernels: StatedKernels = attrs.field(factory=StatedKernels, init=False)
    _issued: set[int] = attrs.field(factory=set[int], init=False)
    """Correlations of the calls in a window and before it."""
    _names: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    _threads: dict[Thread, Thread] = attrs.field(
        factory=dict["Thread", "Thread"], init=False
    )
    _streams: dict[Stream, Stream] = attrs.field(
        factory=dict["Stream", "Stream"], init=False
    )
    _shapes: dict[Shape, Shape] = attrs.field(
        factory=dict["Shape", "Shape"], init=False
    )
    _inputs: dict[bytes, RawInputs] = attrs.field(
        factory=dict[bytes, RawInputs], init=False
    )
    _places: dict[Place, Place] = attrs.field(
        factory=dict["Place", "Place"], init=False
    )

    def add(self, event: Event) -> None:
        """Take up one event; those of other kinds are passed over."""
        category = str(event.get("cat", "")).lower()
        self.categories[category] += 1
        take = _TAKERS.get(category)
        if take is None or event.get("ph") != "X":
            return
        span = span_of(event)
        if span is None:
            self.problems["without a time, left out"] += 1
            return
        start_us, end_us = span
        if end_us < start_us:
            self.problems["of negative duration, taken as 0 us"] += 1
            end_us = start_us
        if self.window is None or self._is_kept(self.window, take, event, span):
            take(self, event, start_us, end_us)
            self.kept += take is not _Reading.frame  # which are mostly PyTorch's own

    def _is_kept(
        self, window: Window, take: _Taker, event: Event, span: tuple[float, float]
    ) -> bool:
        """Whether an event lies in a window, or waits in its queues, however long."""
        if take not in (_Reading.work, _Reading.call):
            return window.has_host(*span)
        correlation = whole_number(args_of(event).get("correlation"), -1)
        start_us, end_us = span
        if take is _Reading.call:
            if start_us < window.end_us:
                self._issued.add(correlation)
            return window.has_host(*span)
        late = end_us >= window.start_us and correlation in self._issued
        return late or window.may_have_work(start_us, end_us)

    def op(self, event: Event, start_us: float, end_us: float) -> None:
        """Take up an op, or a label."""
        name, thread = self._name(event), self._thread(event)
        if step := STEP.match(name):
            self.steps.append(Step(name, int(step[1]), start_us, end_us, thread))
            return
        args = args_of(event)
        marked = event.get("cat") == "user_annotation" and not name.startswith(LOADER)
        label = marked or _LABEL.match(name) is not None
        number = whole_number(args.get("External id"), -1)
        sequence = whole_number(args.get("Sequence number"), -1)
        gradient = whole_number(args.get("Fwd thread id"), 0) > 0
        told = not label or name.startswith(LABEL)
        inputs = self._arguments(args) if told else None
        self.ops.append(
            HostOp(
                name,
                start_us,
                end_us,
                thread,
                inputs,
                label,
                number,
                sequence,
                gradient,
                self._place(args),
            )
        )

    def frame(self, event: Event, start_us: float, end_us: float) -> None:
        """Take up a call of Python, or of a module."""
        found = frame_name(self._name(event))
        if found is not None:
            name, is_module = found
            name = self._names.setdefault(name, name)
            thread = self._thread(event)
            self.frames.append(Frame(name, start_us, end_us, thread, is_module))
            self.kept += 1

    def call(self, event: Event, start_us: float, end_us: float) -> None:
        """Take up a runtime call."""
        name, thread = self._name(event), self._thread(event)
        correlation = whole_number(args_of(event).get("correlation"), -1)
        self.calls.append(RuntimeCall(name, start_us, end_us, thread, correlation))

    def work(self, event: Event, start_us: float, end_us: float) -> None:
        """Take up device work."""
        args = args_of(event)
        stream, shape = stream_of(event, args), shape_of(args)
        self.works.append(
            DeviceWork(
                _DEVICE[str(event.get("cat", "")).lower()],
                self._name(event),
                start_us,
                end_us,
                self._streams.setdefault(stream, stream),
                whole_number(args.get("correlation"), -1),
                whole_number(args.get("bytes"), 0),
                identity_of(args),
                None if shape is None else self._shapes.setdefault(shape, shape),
                stated_collective(args) if "Collective name" in args else None,
                self._signature(args) if SIGNATURE in args else None,
            )
        )

    def sync(self, event: Event, _start_us: float, _end_us: float) -> None:
        """Take up what the trace says of a call that waits."""
        args = args_of(event)
        device = whole_number(args.get("device"), 0)

        def stream(key: str) -> Stream | None:
            number = whole_number(args.get(key), -1)
            return None if number < 0 else (device, number)

        self.syncs[whole_number(args.get("correlation"), -1)] = SyncRecord(
            stream("stream"),
            stream("wait_on_stream"),
            whole_number(args.get("wait_on_cuda_event_record_corr_id"), -1),
        )

    def _place(self, args: Event) -> Place:
        place = stated_place(args)
        if place is NOWHERE:
            return place
        place = Place(plain_text(place.module), plain_text(place.source))
        return self._places.setdefault(place, place)

    def _signature(self, args: Event) -> Kernel | None:
        found = self._kernels.of(args[SIGNATURE])
        self.problems["whose signature cannot be read"] += found is None
        return found

    def _name(self, event: Event) -> str:
        name = name_of(event)
        return self._names.setdefault(name, name)

    def _thread(self, event: Event) -> Thread:
        thread = thread_of(event)
        return self._threads.setdefault(thread, thread)

    def _arguments(self, args: Event) -> RawInputs | None:
        """Return the arguments of an op; None if no shape is recorded."""
        raw = inputs_of(args)
        if raw is None:
            return None
        key = marshal.dumps(cast("Any", tuple(raw)), 2)
        return self._inputs.setdefault(key, raw)

    def trace(self, file: str, header: Event) -> Trace:
        """Put it together, times from the first event on."""
        if not (self.ops or self.calls or self.works):
            raise TraceError(_nothing(file, self.categories))
        if self.window is not None:
            # Leave out work beside the window that is not in its queues either.
            # Clocks differ: of calls in the window all work is kept, whenever it ran.
            own = {call.correlation for call in self.calls}
            self.works = [
                work
                for work in self.works
                if work.correlation in own
                or (
                    work.end_us >= self.window.start_us
                    and (
                        work.correlation in self._issued
                        or work.start_us < self.window.end_us
                    )
                )
            ]
        lists = (self.ops, self.calls, self.works, self.steps)
        origin_us = min(chain.from_iterable(map(_start, events) for events in lists))
        delay(self.ops, -origin_us)
        delay(self.calls, -origin_us)
        delay(self.works, -origin_us)
        delay(self.steps, -origin_us)
        skew = skew_us(self.calls, self.works)
        delay(self.works, skew)
        delay(self.frames, -origin_us)
        self.ops.sort(key=lambda op: (op.start_us, -op.end_us))
        self.calls.sort(key=_start)
        place_ops(self.ops, self.calls, self.frames)
        distributed = record_of(header.get("distributedInfo"))
        found = Trace(
            file,
            devices_of(header),
            optional_number(distributed.get("rank")),
            optional_number(distributed.get("world_size")),
            origin_us + base_us(header),
            self.ops,
            self.calls,
            sorted(self.works, key=_start),
            self.syncs,
            sorted(self.steps, key=_start),
            tuple(self._diagnostics(file, skew)),
            windowed=self.window is not None,
            multiprocessors=multiprocessors_of(header),
        )
        return found if found.steps else _with_steps(found)

    def _diagnostics(self, file: str, skew: float) -> list[Diagnostic]:
        found = [
            Diagnostic(Level.WARNING, "trace-events", f"{count} events {what}", file)
            for what, count in sorted(self.problems.items())
            if count
        ]
        if not self.works:
            message = "no device work: only what the host did is known"
            found.append(Diagnostic(Level.WARNING, "trace-no-device", message, file))
        if self.works and not self.calls:
            message = "no runtime calls: what launched the device work is not known"
            found.append(Diagnostic(Level.WARNING, "trace-no-calls", message, file))
        if not any(op.inputs for op in self.ops if not op.is_label):
            message = "no shapes: record_shapes was off"
            found.append(Diagnostic(Level.NOTE, "trace-no-shapes", message, file))
        if skew:
            message = (
                "kernels begin before their launches: the device's clock was moved by "
                f"{skew:.1f} us"
            )
            found.append(Diagnostic(Level.NOTE, "trace-clock-skew", message, file))
        return found


_Taker: TypeAlias = Callable[[_Reading, Event, float, float], None]
_TAKERS: Mapping[str, _Taker] = {
    **dict.fromkeys(HOST_CATEGORIES, _Reading.op),
    "python_function": _Reading.frame,
    "cuda_runtime": _Reading.call,
    "cuda_driver": _Reading.call,
    "hip_runtime": _Reading.call,
    "runtime": _Reading.call,
    "cuda_sync": _Reading.sync,
    **dict.fromkeys(_DEVICE, _Reading.work),
}


def _with_steps(trace: Trace) -> Trace:
    """Return a trace that marks no steps with those that it tells otherwise."""
    told = told_steps(trace)
    message = (
        f"{len(told.steps)} steps are told by {told.by}: the profiler marked none"
        if told.steps
        else "its steps cannot be told: the profiler marked none, no optimizer steps "
        "twice, and launches do not repeat as steps do; it is one piece"
    )
    note = Diagnostic(Level.NOTE, "trace-steps-told", message, trace.file)
    return attrs.evolve(trace, steps=told.steps, diagnostics=(*trace.diagnostics, note))


def _nothing(file: str, categories: Counter[str]) -> str:
    found = (
        ", ".join(repr(name) for name, _ in categories.most_common(5)) or "no events"
    )
    return (
        f"{file}: no trace of PyTorch's profiler: expected events of cpu_op, "
        f"cuda_runtime and kernel; found {found}"
    )


def _start(event: Timed) -> float:
    return event.start_us
