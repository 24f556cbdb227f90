"""Building of the launch graph that a trace shows."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from perfc import ir
from perfc.costmodels.constants import constants
from perfc.traces import events
from perfc.traces.host_lines import Segment, host_lines, main_thread
from perfc.traces.issue_order import in_order, waits_in_graph, works_by_call
from perfc.traces.recorded import Recorded, StepMark
from perfc.traces.remarks import remarks
from perfc.traces.runtime import Waits, blocks, waits_for
from perfc.traces.stream_waits import StreamWaits
from perfc.traces.ties import tied_devices

_CONSTANTS = constants("traces")

QUEUE = _CONSTANTS.integer("queue")
"""Launches that a stream's queue takes before the next one has to wait."""

BLOCKING_COPY = "blocking copy"
"""Detail of the wait for a copy inside the call that issued it."""

_IDLE_US = _CONSTANTS.number("idle_us")
_RETURN_US = _CONSTANTS.number("return_us")
"""A call that waits returns so long after the device is done."""

_LONGEST_GAP_US = _CONSTANTS.number("longest_gap_us")
_SECONDS = 1e-6
_KINDS = {
    events.DeviceKind.KERNEL: ir.TaskKind.KERNEL,
    events.DeviceKind.COPY: ir.TaskKind.COPY,
    events.DeviceKind.MEMSET: ir.TaskKind.KERNEL,
}


_Busy: TypeAlias = tuple[float, float]
"""How long after a launch its stream was still busy, and how long it was idle then."""


def record(trace: events.Trace) -> Recorded:
    """Return the launch graph of a trace, every task with the seconds it took.

    Host tasks are the segments of `host_lines` and the calls; a call that waits states
    only what it takes when there is nothing to wait for. Launches wait for room in
    their stream's queue.
    """
    return _Recording(trace).run()


@attrs.define(eq=False)
class _Recording:
    trace: events.Trace
    graph: ir.LaunchGraph = attrs.field(init=False)
    start_us: list[float] = attrs.field(factory=list[float], init=False)
    end_us: list[float] = attrs.field(factory=list[float], init=False)
    _works: dict[int, list[events.DeviceWork]] = attrs.field(init=False)
    _waits: StreamWaits = attrs.field(init=False)
    _threads: dict[events.Thread, int] = attrs.field(
        factory=dict[events.Thread, int], init=False
    )
    _streams: dict[events.Stream, int] = attrs.field(
        factory=dict[events.Stream, int], init=False
    )
    _ops: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    _on_stream: dict[events.Stream, list[int]] = attrs.field(
        factory=lambda: defaultdict[events.Stream, list[int]](list), init=False
    )
    _done: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    _lost: dict[events.Stream, list[events.DeviceWork]] = attrs.field(init=False)
    _issuers: dict[int, events.RuntimeCall] = attrs.field(
        factory=dict[int, events.RuntimeCall], init=False
    )
    _missed: int = attrs.field(default=0, init=False)
    _doubled: int = attrs.field(default=0, init=False)
    _unblocked: list[int] = attrs.field(factory=list[int], init=False)
    _marks: tuple[StepMark, ...] = attrs.field(default=(), init=False)
    _made: dict[int, events.DeviceWork] = attrs.field(
        factory=dict[int, events.DeviceWork], init=False
    )
    _places: dict[int, events.Place] = attrs.field(
        factory=dict[int, events.Place], init=False
    )
    _gaps_us: list[_Busy] = attrs.field(factory=list[_Busy], init=False)
    _graph_gaps_us: list[float] = attrs.field(factory=list[float], init=False)
    _latencies_us: list[float] = attrs.field(factory=list[float], init=False)
    _lags_us: list[_Busy] = attrs.field(factory=list[_Busy], init=False)
    _held: list[int] = attrs.field(factory=list[int], init=False)
    """Waits of streams for others."""

    def run(self) -> Recorded:
        """Add everything in the order of the host."""
        self.graph = ir.LaunchGraph(self.trace.file)
        self._works = works_by_call(self.trace)
        self._waits = StreamWaits(self.trace, self._works)
        lines = host_lines(self.trace, self._works.keys())
        # Device work of which the call is not in the trace, last one first.
        issued = {id(work) for group in self._works.values() for work in group}
        found: dict[events.Stream, list[events.DeviceWork]] = defaultdict(list)
        for work in reversed(self.trace.works):
            if id(work) not in issued:
                found[work.stream].append(work)
        self._lost = found
        for segment, call in in_order(lines, self.trace.calls):
            if segment is None:
                self._waits.called(call)
            elif segment.call is None:
                self._gap(segment)
            else:
                self._call(segment, segment.call)
        for stream in sorted(self._lost):
            self._add_lost(stream, math.inf)
        self._state_unblocked()
        # Let the members of a collective start together, and take as long.
        graph = self.graph
        for tasks in tied_devices(self._made):
            least_s = min(graph.stated_s[task] for task in tasks)
            for task in tasks:
                graph.group[task], graph.stated_s[task] = graph.group[tasks[0]], least_s
        return self._recorded(lines)

    def _add_lost(self, stream: events.Stream, until_us: float) -> None:
        """Put work without a call on its stream, before what began at *until_us*.

        It keeps the measured distance, since its causes on other streams are unknown.
        """
        lost = self._lost[stream]
        while lost and lost[-1].start_us < until_us:
            work = lost.pop()
            queue = self._on_stream[stream]
            reached_us = self.end_us[queue[-1]] if queue else 0.0
            if work.start_us > reached_us:
                self._task(
                    ir.TaskKind.WAIT, self._stream(stream), reached_us, work.start_us
                )
            self._waits.issued(None, work, self._device_task(None, work, -1))

    def _gap(self, segment: Segment) -> None:
        assert segment.gap is not None  # noqa: S101 - for the type checker
        after = self._after(segment)
        self._done[id(segment)] = self._task(
            ir.TaskKind.HOST,
            self._thread(segment.thread),
            segment.start_us,
            segment.end_us,
            op=self._op(segment.op),
            after=after,
            detail=segment.gap.value,
        )

    def _after(self, segment: Segment) -> tuple[int, ...]:
        if segment.after is None or id(segment.after) not in self._done:
            return ()
        return (self._done[id(segment.after)],)

    def _call(self, segment: Segment, call: events.RuntimeCall) -> None:
        # A call that synchronises issues nothing. It has to be known as a wait, because
        # its measured length is mostly time of the device, which a replay may change.
        awaited = self._awaited(call)
        if awaited:
            done_us = max(self.end_us[task] for task in awaited)
            self._sync(segment, call.name, awaited, done_us)
            return
        works = self._works.get(call.correlation, [])
        if self._issuers.setdefault(call.correlation, call) is not call:
            works = []  # of two runs in one file: the first call is taken for it
            self._doubled += 1
        # What returned before the copy began has not waited for it.
        blocking = any(
            blocks(call.name, work) and work.start_us < segment.end_us
            for work in works[:1]
        )
        # A stream's queue has room for so many launches. A host that runs further ahead
        # blocks in the call until the oldest one has ended.
        after: set[int] = set()
        for work in works:
            queue = self._on_stream[work.stream]
            if len(queue) >= QUEUE:
                after.add(queue[-QUEUE])
        # The call of a blocking copy is cut in two: up to the begin of the copy the
        # host issues it, from there on it waits, as long as the copy takes in a replay.
        # Clocks that disagree may put the begin outside of the call, hence the limits.
        returned_us = segment.end_us
        if blocking:
            returned_us = min(works[-1].start_us, segment.end_us)
            returned_us = max(returned_us, segment.start_us)
        task = self._task(
            ir.TaskKind.CALL,
            self._thread(segment.thread),
            segment.start_us,
            returned_us,
            op=self._op(segment.op),
            after=tuple(sorted(after)),
            detail=call.name,
        )
        self._done[id(segment)] = task
        # What one call issued to several streams is a CUDA graph. Its inner edges have
        # no calls of their own and are derived from when its parts ran.
        issued: list[int] = []
        for work, other in zip(works, waits_in_graph(works), strict=True):
            held = self._issue(call, work, task, [issued[other]] if other >= 0 else [])
            issued.append(len(self.graph) - 1)
            after.update(held if blocking else ())
        self._place(call, task)
        # Such a call contains waiting. Its length is replaced by that of calls that did
        # not wait, lest a replay count the wait twice: in the call and by the edge.
        if any(self.end_us[t] > segment.start_us for t in after):
            self._unblocked.append(task)
        if blocking:
            last = len(self.graph) - 1
            self._sync(segment, BLOCKING_COPY, [last], self.end_us[last])

    def _place(self, call: events.RuntimeCall, task: int) -> None:
        """Note the source of a call and of what it issued: that of the op around it."""
        op = self._waits.inner.get(id(call))
        place = call.place if op is None or op.place is events.NOWHERE else op.place
        if place is not events.NOWHERE:
            issued = (
                n for n in range(task, len(self.graph)) if self.graph.issue[n] == task
            )
            self._places |= dict.fromkeys((task, *issued), place)

    def _awaited(self, call: events.RuntimeCall) -> Sequence[int]:
        """Return the tasks that a call waits for."""
        kind, waits = waits_for(call.name), self._waits
        if kind is Waits.DEVICE:
            return waits.device_tasks(call)
        if kind is Waits.STREAM:
            return waits.stream_tasks(call)
        return waits.event_tasks(call) if kind is Waits.EVENT else ()

    def _sync(
        self, segment: Segment, name: str, awaited: Sequence[int], done_us: float
    ) -> None:
        """Add a wait, which states what is left of it once the device is done."""
        start_us = segment.start_us
        left_us = segment.end_us - max(start_us, done_us)
        if left_us < 0:  # it did not wait for this, or the clocks disagree
            left_us = min(segment.end_us - start_us, _RETURN_US)
        self._done[id(segment)] = self._task(
            ir.TaskKind.SYNC,
            self._thread(segment.thread),
            segment.end_us - left_us,
            segment.end_us,
            op=self._op(segment.op),
            after=tuple(awaited),
            detail=name,
        )

    def _issue(
        self,
        call: events.RuntimeCall,
        work: events.DeviceWork,
        issue: int,
        others: Sequence[int],
    ) -> tuple[int, ...]:
        """Put *work* on its stream; return what it has to wait for there."""
        self._add_lost(work.stream, work.start_us)
        before = tuple(self._on_stream[work.stream][-1:])
        after = (*self._waits.after(call, work), *others)
        # Measure gaps of busy streams, delays of idle ones, and lags after waits.
        awaited = (*before, *after)
        free_us = max((self.end_us[task] for task in awaited), default=-math.inf)
        busy_us = free_us - call.end_us
        if after:
            if busy_us > _IDLE_US:
                self._lags_us.append((busy_us, work.start_us - free_us))
        elif any(self.graph.issue[task] == issue for task in before):
            self._graph_gaps_us.append(work.start_us - free_us)
        elif free_us < call.start_us - _IDLE_US:
            self._latencies_us.append(work.start_us - call.end_us)
        elif busy_us > _IDLE_US:
            self._gaps_us.append((busy_us, work.start_us - free_us))
        stream = self._stream(work.stream)
        if after:
            # Without its call, of which the work itself keeps the latency.
            wait = self._task(ir.TaskKind.WAIT, stream, 0.0, 0.0, after=after)
            self.start_us[wait] = self.end_us[wait] = work.start_us
            self._held.append(wait)
        self._waits.issued(call, work, self._device_task(call, work, issue))
        return (*before, *after)

    def _device_task(
        self, call: events.RuntimeCall | None, work: events.DeviceWork, issue: int
    ) -> int:
        kind = ir.TaskKind.COLLECTIVE if work.is_collective else _KINDS[work.kind]
        op = self.graph.op[issue] if issue >= 0 else -1
        start_us = work.start_us
        if call is None:
            before = self._on_stream[work.stream]
            start_us = max(start_us, self.end_us[before[-1]] if before else 0.0)
        task = self._task(
            kind,
            self._stream(work.stream),
            min(start_us, work.end_us),
            work.end_us,
            op=op,
            kernel=self.graph.intern(_kernel(work)),
            issue=issue,
            detail=work.name if work.kind is events.DeviceKind.COPY else "",
            group=f"c{len(self.graph)}" if work.is_collective else "",
        )
        self._made[task] = work
        self._on_stream[work.stream].append(task)
        return task

    def _task(  # noqa: PLR0913 - one argument per column
        self,
        kind: ir.TaskKind,
        resource: int,
        start_us: float,
        end_us: float,
        *,
        op: int = -1,
        kernel: int = -1,
        issue: int = -1,
        after: tuple[int, ...] = (),
        detail: str = "",
        group: str = "",
    ) -> int:
        self.start_us.append(start_us)
        self.end_us.append(end_us)
        return self.graph.task(
            kind,
            resource,
            op=op,
            kernel=kernel,
            issue=issue,
            after=after,
            detail=detail,
            group=group,
            stated_s=(end_us - start_us) * _SECONDS,
        )

    def _thread(self, thread: events.Thread) -> int:
        if thread not in self._threads:
            name = f"{thread[0]}/{thread[1]}"
            self._threads[thread] = self.graph.thread(name)
        return self._threads[thread]

    def _stream(self, stream: events.Stream) -> int:
        if stream not in self._streams:
            device, number = stream
            self._streams[stream] = self.graph.stream(f"d{device}s{number}", device)
        return self._streams[stream]

    def _op(self, op: events.HostOp | None) -> int:
        if op is None:
            return -1
        if id(op) not in self._ops:
            place = {"module": op.place.module, "source": op.place.source}
            told = ir.Record({key: name for key, name in place.items() if name})
            self._ops[id(op)] = self.graph.add_op(ir.LaunchOp(op.name, "", told))
        return self._ops[id(op)]

    def _state_unblocked(self) -> None:
        """Give calls that waited, for the queue or a copy, the usual time of others."""
        graph = self.graph
        blocked = set(self._unblocked)
        names = {graph.detail[task] for task in blocked}
        free: dict[str, list[float]] = defaultdict(list)
        held: dict[str, list[float]] = defaultdict(list)
        for task, kind in enumerate(graph.kind):
            if kind is ir.TaskKind.CALL and graph.detail[task] in names:
                times = held if task in blocked else free
                times[graph.detail[task]].append(graph.stated_s[task])
        usual_s = {name: statistics.median(free[name] or held[name]) for name in names}
        for task in blocked:
            typical_s = usual_s[graph.detail[task]]
            graph.stated_s[task] = min(graph.stated_s[task], typical_s)

    def _recorded(self, lines: dict[events.Thread, list[Segment]]) -> Recorded:
        self._marks = tuple(self._steps(lines))
        self._missed = len(self._own_steps(lines)) - len(self._marks)
        latency_us = _usual_delay_us(self._latencies_us)
        # A stream goes on so long after that which it waited for, which is later than
        # the next task of a stream that did not wait.
        lag_us = _usual_gap_us(_while_busy(self._lags_us, latency_us))
        for wait in self._held:
            self.graph.stated_s[wait] = lag_us * _SECONDS
        return Recorded(
            self.trace,
            self.graph,
            self.start_us,
            self.end_us,
            self._marks,
            _usual_gap_us(_while_busy(self._gaps_us, latency_us)),
            _usual_gap_us(self._graph_gaps_us),
            latency_us,
            self._made,
            self._places,
            tuple(self._diagnostics()),
        )

    def _own_steps(self, lines: Mapping[events.Thread, object]) -> list[events.Step]:
        """Return the steps of one process: others mark the same iterations."""
        main = main_thread(self.trace.steps, lines.keys())
        steps = self.trace.steps
        return [s for s in steps if main is None or s.thread[0] == main[0]]

    def _steps(self, lines: dict[events.Thread, list[Segment]]) -> Iterator[StepMark]:
        main = main_thread(self.trace.steps, lines)
        if main is None or main not in lines:
            return
        line = [s for s in lines[main] if id(s) in self._done]
        starts = [segment.start_us for segment in line]
        for step in self._own_steps(lines):
            first = bisect_left(starts, step.start_us - 1e-3)
            last = bisect_left(starts, step.end_us) - 1
            if first >= len(line) or last < first:
                continue
            yield StepMark(
                step.name,
                step.number,
                step.start_us,
                step.end_us,
                self._done[id(line[first])],
                self._done[id(line[last])],
            )

    def _diagnostics(self) -> Iterator[ir.Diagnostic]:
        return remarks(
            self.trace,
            max(self.end_us, default=0.0) - self.trace.delay_us,
            steps=self._missed,
            doubled=self._doubled,
            lost=len(self.trace.works) - sum(map(len, self._works.values())),
            unresolved=self._waits.unresolved,
            refuted=self._waits.refuted,
        )


def _while_busy(gaps: Iterable[_Busy], latency_us: float) -> Iterator[float]:
    return (gap_us for busy_us, gap_us in gaps if busy_us > latency_us)


def _usual_delay_us(delays_us: Sequence[float]) -> float:
    """Return the mean delay of launches, without those that lie far above most."""
    if not delays_us:
        return 0.0
    longest_us = statistics.median(delays_us) + _LONGEST_GAP_US
    return max(0.0, statistics.fmean(d for d in delays_us if d < longest_us))


def _usual_gap_us(gaps_us: Iterable[float]) -> float:
    gaps = [gap for gap in gaps_us if 0 <= gap < _LONGEST_GAP_US]
    return statistics.fmean(gaps) if gaps else 0.0


def _kernel(work: events.DeviceWork) -> ir.Kernel:
    name = "memcpy" if work.kind is events.DeviceKind.COPY else work.name
    params = ir.Record({"bytes": work.size_bytes}) if work.size_bytes else ir.Record({})
    return ir.Kernel(name, "", "", params, ir.NO_WORK, known=False)
