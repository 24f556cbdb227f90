"""Measuring a suite: within a time, with what was measured before."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import attrs
import torch

from perfc.ir import PerfcError
from perfc.measure.case import Call, Case, Family, Tensors, math_of
from perfc.measure.device import Device
from perfc.measure.suite import SUITES, suite
from perfc.measure.timing import Timed, Timer, mean_of
from perfc.measurements import (
    MEASUREMENTS,
    Measurement,
    RowWriter,
    WorkloadMeasurement,
)

Say: TypeAlias = Callable[[str], None]
"""Tells the user one line."""

_MAX_SETS = 128
"""Sets of operands: small ones stay in the L2 as they do in a model."""

_SETS_SHARE = 2
"""All sets together take no more than this part of the free memory."""

_FEWEST_SETS = 2
_PREPARE_SHARE = 2
"""Sets of operands are made for so many times as long as they are timed, two at least.
"""

_BATCH, _ROUNDS = 80, 3
"""Of a CPU: cases that are timed one after another, and how often."""

_SAY_SECONDS = 5.0
_NOT_RUN = (RuntimeError, NotImplementedError, AttributeError, TypeError)
"""What PyTorch raises for an op that this build, or this device, does not have."""


@attrs.define
class KernelRun:
    """A table of measured kernels that is being filled.

    Attributes:
        device: What is measured.
        name: Of the suite.
        path: The table; rows that it has are kept and not measured again.
        ops: Only these ops, or all.
        skipped: Cases that could not be run, and why.
        left: How many cases there was no time for.

    Raises:
        UsageError: there is no such suite or op, or the table's name is no table's.
        PerfcError: the table cannot be read, or has rows of something else.

    """

    device: Device
    name: str
    path: Path
    ops: Collection[str] = ()
    skipped: list[tuple[Case, str]] = attrs.field(
        factory=list[tuple[Case, str]], init=False
    )
    left: int = attrs.field(default=0, init=False)
    _writer: RowWriter[Measurement] = attrs.field(init=False)
    _cases: list[tuple[Family, Case]] = attrs.field(init=False)
    _timer: Timer = attrs.field(init=False)
    _tensors: Tensors = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Read what is there, and decide what is to be measured."""
        self._cases = suite(self.name, self.device, self.ops)
        self._writer = RowWriter(self.path, MEASUREMENTS)
        check_source(self._writer, self.device)
        self._timer = Timer(self.device, SUITES[self.device.kind, self.name].seconds)
        self._tensors = Tensors(self.device)

    @property
    def rows(self) -> list[Measurement]:
        """All rows of the table."""
        return self._writer.rows

    def measure(self, seconds: float, say: Say) -> None:
        """Measure until the suite or the time is over; then write the table.

        Raises:
            PerfcError: nothing could be measured, the device failed, or the rows
                cannot be written.

        """
        deadline = time.monotonic() + seconds
        done = {Case(row.op, row.dtype, row.params) for row in self.rows}
        todo = [(f, case) for f, case in self._cases if case not in done]
        if done:
            say(f"{self.path} has {len(self._cases) - len(todo)} of the shapes already")
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

    def _measure(
        self, todo: Sequence[tuple[Family, Case]], deadline: float, say: Say
    ) -> None:
        """Measure case by case as long as there is time.

        What else runs on a CPU slows it for seconds: its cases are timed in several
        rounds, a batch of them at a time, and the mean counts.
        """
        rounds = 1 if self.device.is_cuda else _ROUNDS
        said = time.monotonic()
        for start, size in self._batches(len(todo)):
            now = time.monotonic()
            if now > deadline:
                return
            if now - said > _SAY_SECONDS:
                said = now
                say(f"{start} of {len(todo)} shapes, {deadline - now:.0f} s left")
            found: dict[Case, list[Sequence[Timed]]] = {}
            try:
                for family, case in list(todo[start : start + size]) * rounds:
                    if time.monotonic() > deadline:
                        return
                    self._time(family, case, found, say)
            finally:
                self._keep(found)

    def _batches(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield where batches start, and their sizes: the first rows come at once."""
        start, size = 0, 1
        while start < count:
            yield start, size
            start += size
            size = 1 if self.device.is_cuda else min(2 * size, _BATCH)

    def _time(
        self,
        family: Family,
        case: Case,
        found: dict[Case, list[Sequence[Timed]]],
        say: Say,
    ) -> None:
        """Time a case once more, unless it could not be run before."""
        rounds = found.setdefault(case, [])
        if () in rounds:
            return
        try:
            rounds.append(_timed(family, case, self._tensors, self._timer))
        except _NOT_RUN as error:
            self._skip(case, error, say)
            rounds.append(())

    def _keep(self, found: Mapping[Case, Sequence[Sequence[Timed]]]) -> None:
        for case, rounds in found.items():
            if () not in rounds:
                ways = [mean_of(way) for way in zip(*rounds, strict=True)]
                self._writer.append([self._row(case, way) for way in ways])
        self.left -= len(found)

    def _skip(self, case: Case, error: Exception, say: Say) -> None:
        """Note a case that cannot be run; a device that has failed is an error."""
        why = " ".join(str(error).partition("\n")[0].split()) or type(error).__name__
        if self.device.is_cuda:
            try:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
            except RuntimeError:
                msg = f"the GPU failed at {case}: {why}; the same command continues"
                raise PerfcError(msg) from None
        self.skipped.append((case, why))
        say(f"skipped {case}: {why}")

    def _row(self, case: Case, timed: Timed) -> Measurement:
        return Measurement(
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
        )


def check_source(
    writer: RowWriter[Measurement] | RowWriter[WorkloadMeasurement], device: Device
) -> None:
    """Raise `PerfcError` if a table has rows of another device or PyTorch."""
    for row in writer.rows:
        if (row.target, row.source) != (device.target, device.source):
            msg = (
                f"{writer.path} has rows of {row.target} ({row.source}); this is "
                f"{device.target} ({device.source}): name another file"
            )
            raise PerfcError(msg)


def _timed(family: Family, case: Case, tensors: Tensors, timer: Timer) -> list[Timed]:
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(math_of(case.dtype))
        sets = _sets(timer.device, int(case.work.bytes), family.memory_bytes(case))
        seconds = _PREPARE_SHARE * timer.seconds
        calls = _prepared(family, case, tensors, sets, seconds)
        return timer.time(calls, capturable=family.capturable(case))


def _prepared(
    family: Family, case: Case, tensors: Tensors, sets: int, seconds: float
) -> list[Call]:
    """Return so many calls, fewer if they take long to make.

    Each has been called once: the first step of an optimizer makes its states.
    """
    calls: list[Call] = []
    end = time.monotonic() + seconds
    while len(calls) < sets and (len(calls) < _FEWEST_SETS or time.monotonic() < end):
        call = family.prepare(case, tensors)
        call()
        calls.append(call)
    return calls


def _sets(device: Device, moved: int, held: int) -> int:
    """Return how many sets of operands the L2 cannot hold, as far as memory goes.

    Of a table only the rows that are looked up come into it.
    """
    wanted = 2 * device.cache_bytes // max(moved, 1) + 2
    room = device.free_bytes() // _SETS_SHARE // max(held, 1)
    return max(1, min(wanted, room, _MAX_SETS))
