"""Measuring a suite: within a time, with what was measured before."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeAlias

import attrs

from perfc import measurements
from perfc.ir import PerfcError
from perfc.measure.call_profile import profiled_calls, times_of
from perfc.measure.case import Case, Family, Tensors
from perfc.measure.design import SEED
from perfc.measure.device import Device
from perfc.measure.fatal import Fatal
from perfc.measure.heap import heap_results, mapped_operands
from perfc.measure.rounds import ROUNDS, Prepared
from perfc.measure.suites import SUITES, suite
from perfc.measure.timing import Timed, Timer

Say: TypeAlias = Callable[[str], None]
"""Tells the user one line."""

Choose: TypeAlias = Callable[
    [Sequence[tuple[Family, Case]]], Iterable[tuple[Family, Case]]
]
"""Takes the cases of a suite and returns those that are wanted, in order."""

_BATCH = 1024
"""Most cases of a CPU that are timed in turn: as many as memory holds, for what slows
the machine for seconds then slows all of them alike."""

_GPU_BATCH = 32
"""Cases of a GPU that share one start of the profiler."""

_GROWTH = 4
"""Times as many cases as in the last batch are in the next: the first rows come soon.
"""

_BATCH_SHARE = 2
"""Their operands take no more than this part of the free memory."""

_SAY_SECONDS = 5.0
_NOT_RUN = (
    *(RuntimeError, AttributeError, TypeError, ValueError, LookupError),
    *(AssertionError, MemoryError),
)
"""What PyTorch raises for an op that this build, or this device, does not have, for
arguments that it does not take, and where memory does not suffice."""

_UNSAID: Mapping[type[Exception], str] = {MemoryError: "Python can't allocate memory"}
"""What errors without a text mean."""


@attrs.define
class KernelRun:
    """A table of measured kernels that is being filled.

    Attributes:
        device: What is measured.
        name: Of the suite.
        path: The table; rows that it has are kept and not measured again.
        ops: Only these ops, or all.
        seed: Other shapes for each.
        choose: Leaves cases out, or puts them in another order.
        skipped: Cases that could not be run, and why.
        left: How many cases there was no time for.

    """

    device: Device
    name: str
    path: Path
    ops: Collection[str] = ()
    seed: int = SEED
    choose: Choose | None = None
    skipped: list[tuple[Case, str]] = attrs.field(
        factory=list[tuple[Case, str]], init=False
    )
    left: int = attrs.field(default=0, init=False)
    _writer: measurements.RowWriter[measurements.Measurement] = attrs.field(init=False)
    _cases: list[tuple[Family, Case]] = attrs.field(init=False)
    _timer: Timer = attrs.field(init=False)
    _tensors: Tensors = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Read what is there, and decide what is to be measured."""
        cases = suite(self.name, self.device, self.ops, self.seed)
        self._cases = [*self.choose(cases)] if self.choose else cases
        self._writer = measurements.RowWriter(self.path, measurements.MEASUREMENTS)
        check_source(self._writer, self.device)
        self._timer = Timer(self.device, SUITES[self.device.kind, self.name].seconds)
        self._tensors = Tensors(self.device)

    @property
    def rows(self) -> list[measurements.Measurement]:
        """All rows of the table."""
        return self._writer.rows

    def flush(self) -> None:
        """Write the table as it is now."""
        self._writer.flush()

    @property
    def _fatal(self) -> Fatal:
        return Fatal(self.path)

    def measure(self, seconds: float, say: Say) -> None:
        """Measure until the suite or the time is over; then write the table."""
        deadline = time.monotonic() + seconds
        done = {Case(row.op, row.dtype, row.params) for row in self.rows}
        fatal = self._fatal.known()
        left_out = {case for _, case in self._cases if _line(case) in fatal}
        todo = [(f, c) for f, c in self._cases if c not in done | left_out]
        if done:
            had = len(self._cases) - len(todo) - len(left_out - done)
            say(f"{self.path} has {had} of the shapes already")
        if left_out:
            path = self._fatal.path
            say(f"{len(left_out)} shapes made the GPU fail: left out by {path}")
        self.left = len(todo)
        try:
            self._measure(todo, deadline, say)
        finally:
            self._writer.flush()
            count = f"{self.left} shapes left to measure"
            say(f"{len(self.rows)} rows in {self.path}, {count}")
        if self.skipped and not self.rows:
            case, why = self.skipped[0]
            msg = f"nothing could be measured; {case}: {why}"
            raise PerfcError(msg)
        if left_out and not todo and not self.rows:
            raise self._fatal.nothing_left()

    def _measure(
        self, todo: Sequence[tuple[Family, Case]], deadline: float, say: Say
    ) -> None:
        """Measure batch by batch as long as there is time."""
        begin = said = time.monotonic()
        start, size = 0, 1
        while start < len(todo) and (now := time.monotonic()) <= deadline:
            if now - said > _SAY_SECONDS:
                said = now
                say(f"{start} of {len(todo)} shapes, {deadline - now:.0f} s left")
            batch: list[Prepared] = []
            try:
                with nullcontext() if self.device.is_cuda else mapped_operands():
                    chosen = todo[start : start + size]
                    start += self._prepare(chosen, batch, deadline, say)
                with nullcontext() if self.device.is_cuda else heap_results():
                    self._visit(batch, deadline, say)
                self._profile(batch, say)
            finally:
                self._keep(batch)
            size = self._next_size(size, start, begin, deadline)

    def _next_size(self, size: int, done: int, begin: float, deadline: float) -> int:
        """Return how many cases follow: the first rows come at once, the last in time.

        Those of a GPU are not timed in turn: a few, for the profiler.
        """
        if self.device.is_cuda:
            return _GPU_BATCH
        now = time.monotonic()
        in_time = int((deadline - now) / max(now - begin, 1e-3) * done)
        return max(1, min(_GROWTH * size, _BATCH, in_time))

    def _prepare(
        self,
        cases: Sequence[tuple[Family, Case]],
        batch: list[Prepared],
        deadline: float,
        say: Say,
    ) -> int:
        """Make the operands of cases while memory holds them; return of how many."""
        room = self.device.free_bytes() // _BATCH_SHARE
        for number, (family, case) in enumerate(cases):
            if room < 0 or (batch and time.monotonic() > deadline):
                return number
            try:
                batch.append(Prepared.of(family, case, self._tensors, self.device))
                room -= batch[-1].held_bytes
            except _NOT_RUN as error:
                self._skip(case, error, say)
        return len(cases)

    def _visit(self, batch: list[Prepared], deadline: float, say: Say) -> None:
        """Time the cases in turn, again and again; drop what fails after all.

        The first is timed however late it is: a run that goes on gets further.
        """
        for number in range(1 if self.device.is_cuda else ROUNDS):
            for prepared in tuple(batch):
                begun = any(one.rounds for one in batch)
                if begun and time.monotonic() > deadline:
                    return
                if not prepared.is_due(number, self._timer):
                    continue
                try:
                    prepared.visit(self._timer)
                except _NOT_RUN as error:
                    batch.remove(prepared)
                    self._skip(prepared.case, error, say)

    def _profile(self, batch: Sequence[Prepared], say: Say) -> None:
        """Let the profiler time what no graph holds, all of the batch in one go."""
        missing = [one for one in batch if one.needs_profiler(self.device)]
        if not missing:
            return
        try:
            calls = [one.profiled() for one in missing]
            times = [times_of(one.call_seconds) for one in missing]
            found = profiled_calls(calls, self.device, self._timer.clock(), times)
        except _NOT_RUN as error:
            first = missing[0].case
            self._fatal.check(str(first), _said(error), _line(first))
            say(f"not profiled, {len(missing)} shapes from {first}: {_said(error)}")
            return
        for one, timed in zip(missing, found, strict=True):
            one.rounds[-1] = [*one.rounds[-1], *([timed] if timed else [])]

    def _keep(self, batch: Sequence[Prepared]) -> None:
        """Write what was found; that of a GPU in one go, for the disk is waited for."""
        found = [(one, ways) for one in batch if (ways := one.result())]
        size = _GPU_BATCH if self.device.is_cuda else 1
        for start in range(0, len(found), size):
            some = found[start : start + size]
            rows = [self._row(one, way) for one, ways in some for way in ways]
            self._writer.append(rows)
            self.left -= len(some)

    def _skip(self, case: Case, error: Exception, say: Say) -> None:
        """Note a case that cannot be run; a device that has failed is an error."""
        why = _said(error)
        if self.device.is_cuda:
            self._fatal.check(str(case), why, _line(case))
        self.left -= 1
        self.skipped.append((case, why))
        say(f"skipped {case}: {why}")

    def _row(self, prepared: Prepared, timed: Timed) -> measurements.Measurement:
        case = prepared.case
        return measurements.Measurement(
            target=self.device.target,
            op=case.op,
            dtype=case.dtype,
            params=case.params,
            latency_us=timed.median_us,
            timing=timed.timing,
            source=self.device.source,
            kernel=timed.kernel,
            split=case.split,
            p10_us=timed.p10_us,
            p90_us=timed.p90_us,
            n=timed.n,
            sm_clock_mhz=timed.clock.sm_clock_mhz,
            throttled=timed.clock.throttled,
            host_us=timed.host_us,
            rotated_bytes=prepared.rotated_bytes,
        )


def _said(error: Exception) -> str:
    said = " ".join(str(error).partition("\n")[0].split())
    return said or _UNSAID.get(type(error), type(error).__name__)


def _line(case: Case) -> str:
    return f"{case.op} {case.dtype} {case.params}"


def check_source(
    writer: measurements.RowWriter[measurements.Measurement]
    | measurements.RowWriter[measurements.WorkloadMeasurement],
    device: Device,
) -> None:
    """Raise `PerfcError` if a table has rows of another device or PyTorch."""
    for row in writer.rows:
        if (row.target, row.source) != (device.target, device.source):
            msg = (
                f"{writer.path} has rows of {row.target} ({row.source}); this is "
                f"{device.target} ({device.source}): name another file"
            )
            raise PerfcError(msg)
