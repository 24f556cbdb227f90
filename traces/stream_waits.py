"""Device work that a stream waits for, where the trace does not say.

Traces of 2024 and later name streams and events of waiting calls, if they were asked
to: an event stands for what its stream had been given when it was recorded. Of others
it is known that `cudaStreamWaitEvent` was called, not by which stream nor for what.
These rules guess it; none of them looks at when device work ran:

- the stream that waits is the one that the thread launches to next;
- a collective waits for the stream that its thread launched to last, which is what
  PyTorch's process groups do before every collective; waits inside of an op that
  launches a collective belong to it;
- a wait in an op that only keeps a collective's books (`record_param_comms`,
  `wait_tensor`) is the `wait()` of the last collective of the thread that nobody waited
  for, all reduces of the autograd thread left out;
- those are gradient buckets, which DDP waits for at the end of backward, outside of any
  op: the oldest one each time, up to the next launch of another thread;
- any other wait is for the side stream launched to most recently that the waiting
  stream has not waited for since, streams of collectives left out. The stream that
  computes is waited for only if an event was recorded right after work of it.

A guess that the recording refutes is dropped, and nothing is guessed in its place: what
began before something else had ended did not wait for it, nor did a call of the host's
that returned before. What a trace names is never dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from perfc.traces.events import DeviceWork, HostOp, RuntimeCall, Stream, Thread, Trace
from perfc.traces.nesting import BOOKKEEPING, CLOCKS_US, innermost
from perfc.traces.runtime import is_record, is_stream_wait

_BACKWARD = "autograd::engine::evaluate_function"


@attrs.frozen
class _Awaited:
    """A task that something waits for; guessed, or as the trace names it."""

    task: int
    told: bool = False


@attrs.define(eq=False)
class _Flying:
    """A collective that nobody waited for yet."""

    task: int
    thread: Thread


@attrs.define(eq=False)
class StreamWaits:
    """Follows a trace call by call, and tells what each piece of work waits for.

    Call `issued` for every task put on a stream and `called` for every other call, in
    the order of the host.
    """

    trace: Trace
    works: Mapping[int, Sequence[DeviceWork]]
    unresolved: Counter[str] = attrs.field(factory=Counter[str])
    refuted: Counter[str] = attrs.field(factory=Counter[str])
    """Guesses that are dropped, by what was guessed to wait."""
    inner: dict[int, HostOp] = attrs.field(init=False)
    """The innermost op around each call, by the identity of the call."""
    _next: dict[int, Stream] = attrs.field(init=False)
    _launching: set[int] = attrs.field(init=False)
    _compute: Stream | None = attrs.field(init=False)
    _autograd: set[Thread] = attrs.field(init=False)
    _collectives: set[Stream] = attrs.field(init=False)
    _last: dict[Stream, int] = attrs.field(factory=dict[Stream, int], init=False)
    _untold: set[Thread] = attrs.field(factory=set["Thread"], init=False)
    """Threads with a wait of a collective that a trace does not name: that of a stream
    which has done nothing yet."""
    _devices: dict[int | str, set[int]] = attrs.field(
        factory=dict["int | str", "set[int]"], init=False
    )
    """The devices that each process launches to."""
    _order: list[Stream] = attrs.field(factory=list[Stream], init=False)
    _current: dict[Thread, Stream] = attrs.field(
        factory=dict[Thread, Stream], init=False
    )
    _flying: list[_Flying] = attrs.field(factory=list[_Flying], init=False)
    _buckets: list[_Flying] = attrs.field(factory=list[_Flying], init=False)
    _seen: dict[tuple[Stream, Stream], int] = attrs.field(
        factory=dict[tuple[Stream, Stream], int], init=False
    )
    _recorded_on: dict[int, Stream] = attrs.field(init=False)
    """The streams of events that somebody waits for, by the call that records them."""
    _is_told: bool = attrs.field(init=False)
    """Whether the trace names what streams wait for."""
    _recorded: dict[int, tuple[_Awaited, ...]] = attrs.field(
        factory=dict[int, "tuple[_Awaited, ...]"], init=False
    )
    """Tasks that events stand for, by the call that records them."""
    _event: dict[Thread, Stream] = attrs.field(factory=dict[Thread, Stream], init=False)
    _pending: dict[Stream, list[_Awaited]] = attrs.field(
        factory=dict[Stream, list[_Awaited]], init=False
    )
    _ended_us: dict[int, float] = attrs.field(factory=dict[int, float], init=False)
    """Measured end of the work of each task."""

    def __attrs_post_init__(self) -> None:
        """Look ahead: what lies in which op, and what each thread launches next."""
        syncs = self.trace.syncs.values()
        self._recorded_on = {
            sync.record: sync.awaited for sync in syncs if sync.awaited is not None
        }
        self._is_told = any(s.awaited and s.stream for s in syncs)
        self.inner = innermost(self.trace)
        self._next, self._launching = self._look_ahead()
        self._autograd = {
            op.thread for op in self.trace.ops if op.name.startswith(_BACKWARD)
        }
        works = [work for group in self.works.values() for work in group]
        self._collectives = {work.stream for work in works if work.is_collective}
        busiest = Counter(work.stream for work in works).most_common(1)
        self._compute = busiest[0][0] if busiest else None

    def _look_ahead(self) -> tuple[dict[int, Stream], set[int]]:
        """Return the stream launched to after each wait, and ops with collectives."""
        following: dict[Thread, Stream] = {}
        anywhere: Stream | None = None
        found: dict[int, Stream] = {}
        launching: set[int] = set()
        for call in reversed(self.trace.calls):
            group = self.works.get(call.correlation, ())
            if is_stream_wait(call.name):
                stream = following.get(call.thread, anywhere)
                if stream is not None:
                    found[id(call)] = stream
            elif group and not group[0].is_collective:
                following[call.thread] = anywhere = group[0].stream
            elif group and (op := self.inner.get(id(call))) is not None:
                launching.add(id(op))
        return found, launching

    def after(self, call: RuntimeCall, work: DeviceWork) -> tuple[int, ...]:
        """Return the tasks that *work*, which *call* issues, has to wait for."""
        # A wait holds up whatever its stream gets next, and only that: what follows is
        # after it in the order of the stream anyway.
        waited = self._pending.pop(work.stream, [])
        current = self._current.get(call.thread)
        untold = not self._is_told or call.thread in self._untold
        alone = len(self.works[call.correlation]) == 1  # not one of a CUDA graph
        by_rule = work.is_collective and untold and alone
        if by_rule and current is not None and current != work.stream:
            waited.append(_Awaited(self._last[current]))
            self._seen[work.stream, current] = self._last[current]
            self._untold.discard(call.thread)
        return tuple(self._possible(waited, work.start_us, "device work"))

    def issued(self, call: RuntimeCall | None, work: DeviceWork, task: int) -> None:
        """Remember that *work* is *task* of the launch graph."""
        stream = work.stream
        self._last[stream] = task
        self._ended_us[task] = work.end_us
        if call is not None:
            self._devices.setdefault(call.thread[0], set()).add(stream[0])
        if not self._order or self._order[-1] != stream:
            if stream in self._order:
                self._order.remove(stream)
            self._order.append(stream)
        if call is None:
            return
        if not work.is_collective:
            self._current[call.thread] = stream
            if self._buckets and self._buckets[-1].thread != call.thread:
                self._buckets.clear()
            return
        bucket = call.thread in self._autograd and "AllReduce" in work.name
        flying = self._buckets if bucket else self._flying
        flying.append(_Flying(task, call.thread))

    def called(self, call: RuntimeCall) -> None:
        """Take note of a call that records an event or lets a stream wait."""
        if is_record(call.name):
            current = self._current.get(call.thread)
            stream = self._recorded_on.get(call.correlation, current)
            # An event also stands for waits that its stream has been given, but that no
            # work follows yet.
            if stream is not None:
                after = (*self._end(stream, told=True), *self._pending.get(stream, ()))
                self._recorded[call.correlation] = after
            # Rules that guess use events of the current stream only: one of another
            # stream is named by the trace, which needs no guess.
            if stream is not None and stream == current:
                self._event[call.thread] = stream
        elif is_stream_wait(call.name):
            self._wait(call)

    def event_tasks(self, call: RuntimeCall) -> Sequence[int]:
        """Return the tasks that precede the event a host waits for, if known."""
        told = self.trace.syncs.get(call.correlation)
        if told is not None and told.record in self._recorded:
            return self._until(call, self._recorded[told.record])
        stream = told.awaited if told is not None else self._event.get(call.thread)
        return self._until(call, self._end(stream))

    def stream_tasks(self, call: RuntimeCall) -> Sequence[int]:
        """Return the last task of the stream that a host waits for, if known."""
        told = self.trace.syncs.get(call.correlation)
        if told is not None and told.stream is not None:
            return self._until(call, self._end(told.stream, told=True))
        return self._until(call, self._end(self._current.get(call.thread)))

    def device_tasks(self, call: RuntimeCall) -> Sequence[int]:
        """Return the last task of every stream of the devices of a process.

        Those of the process are the ones that it launched to; all, if none is known.
        """
        own = self._devices.get(call.thread[0])
        every = self._last.items()
        last = [_Awaited(task) for (n, _), task in every if own is None or n in own]
        return self._until(call, last)

    def _end(self, stream: Stream | None, *, told: bool = False) -> list[_Awaited]:
        return [_Awaited(self._last[stream], told)] if stream in self._last else []

    def _until(self, call: RuntimeCall, waited: Iterable[_Awaited]) -> list[int]:
        return self._possible(waited, call.end_us, "calls of the host")

    def _possible(
        self, waited: Iterable[_Awaited], went_on_us: float, who: str
    ) -> list[int]:
        """Return the tasks but for guesses that *who* cannot have waited for."""
        latest_us = went_on_us + CLOCKS_US
        told = {one.task for one in waited if one.told}
        guessed = {one.task for one in waited} - told
        kept = {task for task in guessed if self._ended_us[task] <= latest_us}
        self.refuted[who] += len(guessed) - len(kept)
        return sorted(told | kept)

    def _wait(self, call: RuntimeCall) -> None:
        told = self.trace.syncs.get(call.correlation)
        if told is not None and told.stream is not None and told.awaited is not None:
            for one in self._recorded.get(told.record, self._end(told.awaited)):
                self._let_wait(told.stream, told.awaited, one)
            return
        op = self.inner.get(id(call))
        if op is not None and id(op) in self._launching:
            self._untold.add(call.thread)
            return  # `after` knows what a collective waits for
        stream = self._next.get(id(call))
        if stream is None:
            return
        if op is not None and op.name in BOOKKEEPING:
            last = len(self._flying) - 1
            own = (
                n for n in range(last, -1, -1) if self._flying[n].thread == call.thread
            )
            if last < 0:
                self.unresolved["collective before the trace began"] += 1
            else:
                flying = self._flying.pop(next(own, last))
                self._pending.setdefault(stream, []).append(_Awaited(flying.task))
        elif not self._bucket(op, stream):
            self._side(call, stream)

    def _bucket(self, op: HostOp | None, stream: Stream) -> bool:
        if not self._buckets or op is not None:
            return False
        bucket = self._buckets.pop(0)
        self._pending.setdefault(stream, []).append(_Awaited(bucket.task))
        return True

    def _side(self, call: RuntimeCall, stream: Stream) -> None:
        # Popped, since an event explains one wait: a second one is for something else.
        recorded = self._event.pop(call.thread, None)
        if recorded is not None and recorded != stream:
            self._let_wait(stream, recorded, _Awaited(self._last[recorded]))
            return
        # The compute stream would be the most recent almost always, and collectives
        # have rules of their own, so neither is guessed here.
        for other in reversed(self._order):
            task = self._last[other]
            if other in (stream, self._compute) or other in self._collectives:
                continue
            # A stream that has waited for this task already needs no second wait.
            if self._seen.get((stream, other), -1) < task:
                self._let_wait(stream, other, _Awaited(task))
                return
        self.unresolved["stream with nothing to wait for"] += 1

    def _let_wait(self, stream: Stream, awaited: Stream, one: _Awaited) -> None:
        self._seen[stream, awaited] = one.task
        self._pending.setdefault(stream, []).append(one)
