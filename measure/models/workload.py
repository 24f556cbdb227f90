"""Measuring iterations of a real model: one row for each setting.

Once PyTorch's profiler has run, CUPTI stays attached to the process: on an H100, eager
steps that wait for the host then take 1.3 to 2.4 times as long. So all settings are
timed before any is profiled. On a CPU, which has no CUPTI, one follows the other.
"""

from __future__ import annotations

import gc
import math
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import attrs
import torch

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import US
from perfc.measure.clocks import Clock, ClockReader
from perfc.measure.device import Device
from perfc.measure.failure import RunError, explained
from perfc.measure.fatal import Fatal
from perfc.measure.kernel_run import Say, check_source
from perfc.measure.models.iteration import Iteration
from perfc.measure.models.setting import AUTO, CUDAGRAPH, Setting
from perfc.measure.models.subject import Subject
from perfc.measure.profiled import Trace, allocated_peak, trace_of
from perfc.measure.timing import percentiles
from perfc.measurements import TEST, WORKLOADS, RowWriter, WorkloadMeasurement

Key: TypeAlias = tuple[object, ...]

Keep: TypeAlias = Callable[[WorkloadMeasurement, Trace], None]
"""Takes a row and the trace of further iterations of the same setting."""

Once: TypeAlias = Callable[[Setting, Say], None]
"""Does something for a setting, and tells the user."""

_WARM_UP = 5
_WARM_UP_SHARE, _PROFILED_SHARE = 0.2, 0.1
"""Times of the warm-up and of profiling, as shares of the timed iterations'."""


@attrs.define
class WorkloadRun:
    """A table of measured iterations that is being filled.

    Attributes:
        device: What is measured.
        subject: The model.
        path: The table; rows that it has are kept and not measured again.
        iterations: How many are timed, if there is time.
        seconds: For the timed iterations of a row.
        profiled: How many more run under the profiler, if there is time; with none,
            rows do not say how long the GPU was busy.
        keep: Takes each row and the Kineto trace of its profiled iterations.
        deadline: On the clock of `time.monotonic`: no setting begins after it.
        skipped: Settings that could not be run or not be profiled, and why.

    """

    device: Device
    subject: Subject
    path: Path
    iterations: int = 50
    seconds: float = 60.0
    profiled: int = 5
    keep: Keep | None = None
    deadline: float = math.inf
    skipped: list[tuple[Setting, str]] = attrs.field(
        factory=list["tuple[Setting, str]"], init=False
    )
    _writer: RowWriter[WorkloadMeasurement] = attrs.field(init=False)
    _clocks: ClockReader = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Read what is there."""
        self._writer = RowWriter(self.path, WORKLOADS, _key)
        check_source(self._writer, self.device)
        self._clocks = ClockReader(self.device)

    @property
    def rows(self) -> list[WorkloadMeasurement]:
        """All rows of the table."""
        return self._writer.rows

    def flush(self) -> None:
        """Write the table as it is now."""
        self._writer.flush()

    def measure(self, settings: Sequence[Setting], say: Say) -> None:
        """Time all settings, then profile them; skip those that the table has."""
        before = len(self.skipped)
        tried = self.time(settings, say)
        failed = self.skipped[before:]
        self.profile(settings, say)
        if tried and len(failed) == tried:
            setting, why = failed[0]
            msg = f"nothing could be measured; {setting}: {why}"
            raise PerfcError(msg)
        if settings and not tried and not self.rows:
            raise self._fatal.nothing_left()

    def time(self, settings: Sequence[Setting], say: Say) -> int:
        """Time all settings that the table has no row of; then write the table.

        On a CPU those that have a `keep` are profiled, too.

        Returns:
            How many settings there were to time.

        """
        if not self.device.is_cuda and any(s.runtime == CUDAGRAPH for s in settings):
            msg = f"runtime {CUDAGRAPH} needs --device cuda: a CPU has no CUDA graphs"
            raise UsageError(msg)
        asked, known = self._by_key(settings), self._known()
        todo = [setting for key, setting in asked.items() if key not in known]
        if len(todo) < len(asked):
            done = len(asked) - len(todo)
            say(f"{self.path} has {done} of {len(asked)} rows already")
        return self._each(todo, self._time, say)

    def profile(self, settings: Sequence[Setting], say: Say) -> None:
        """Find out how long the GPU was busy where rows do not say; write the table.

        Only on a GPU: a CPU's row has nothing to be added.
        """
        if not (self.device.is_cuda and self.profiled):
            return
        asked, known = self._by_key(settings), self._known()
        rows = {
            setting: known[key]
            for key, setting in asked.items()
            if key in known and known[key].gpu_active_us is None
        }
        self._each([*rows], lambda s, say: self._profile(s, rows[s], say), say)

    def _each(self, todo: Sequence[Setting], once: Once, say: Say) -> int:
        """Do something for settings while there is time; return how many they are.

        Those that made the GPU fail are left out.
        """
        fatal = self._fatal.known()
        chosen = [setting for setting in todo if self._line(setting) not in fatal]
        for setting in todo:
            if setting not in chosen:
                say(f"{setting} made the GPU fail: left out by {self._fatal.path}")
        try:
            for setting in chosen:
                if time.monotonic() > self.deadline:
                    break
                once(setting, say)
                # Back what a model took that nobody holds any more.
                gc.collect()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
        finally:
            self._writer.flush()
        return len(chosen)

    def _by_key(self, settings: Sequence[Setting]) -> dict[Key, Setting]:
        """Return settings as they can be on this device, each once."""
        settled = [self.subject.settled(s, self.device) for s in settings]
        return {self._key(setting): setting for setting in settled}

    def _known(self) -> dict[Key, WorkloadMeasurement]:
        return {_key(row): row for row in reversed(self.rows)}

    @property
    def _fatal(self) -> Fatal:
        return Fatal(self.path)

    def _line(self, setting: Setting) -> str:
        params = self.subject.params_on(self.device, setting)
        return f"{self.subject.name} {params}, {setting}, inputs {setting.inputs}"

    def _key(self, setting: Setting) -> Key:
        params = self.subject.params_on(self.device, setting)
        batch = setting.batch or self.subject.default_batch
        own = (setting.mode, setting.runtime, setting.dtype, batch)
        asked = (setting.optimizer, setting.inputs, setting.attention)
        return (self.subject.name, params, *own, *asked)

    def _time(self, setting: Setting, say: Say) -> None:
        """Add the row of a setting."""
        try:
            with self._made(setting) as iteration:
                found = self._timed(iteration, setting)
        except RunError as error:
            self._skip(setting, str(error), say)
            return
        row = self._row(setting, found)
        self._writer.append([row])
        if self.keep is not None and found.trace is not None:
            self.keep(row, found.trace)
        say(
            f"{row.model}, {setting}: {row.time_us:,.0f} us "
            f"({row.p10_us:,.0f} to {row.p90_us:,.0f}, {row.n} iterations)"
        )

    def _profile(self, setting: Setting, row: WorkloadMeasurement, say: Say) -> None:
        """Complete the row of a setting; its trace is kept before, not to be lost."""
        try:
            with self._made(setting) as iteration, iteration.running():
                self._warm_up(iteration)
                trace = self._trace(iteration, row.time_us)
        except RunError as error:
            self._skip(setting, f"not profiled: {error}", say)
            return
        # A GPU that launched kernels was not busy for no time.
        active_us = trace.active_us() or None
        row = attrs.evolve(row, gpu_active_us=active_us)
        if self.keep is not None:
            self.keep(row, trace)
        self._writer.append([row])
        busy = "the profiler saw no kernel"
        if active_us is not None:
            busy = f"the GPU is busy for {active_us:,.0f} us"
        say(f"{row.model}, {setting}: {busy}")

    @contextmanager
    def _made(self, setting: Setting) -> Generator[Iteration]:
        """Make a model, ready to run."""
        with explained(self.device), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, of how models are written
            made = self.subject.make(self.device, setting)
            iteration = Iteration(made, self.device, setting)
            iteration.prepare()
            yield iteration

    def _warm_up(self, iteration: Iteration) -> None:
        iteration.timed(_WARM_UP, self.seconds * _WARM_UP_SHARE)

    def _timed(self, iteration: Iteration, setting: Setting) -> Found:
        """Warm up, time, count memory; on a CPU profile, if anybody keeps that."""
        with iteration.running():
            self._warm_up(iteration)
            if self.device.is_cuda and setting.runtime != CUDAGRAPH:
                torch.cuda.reset_peak_memory_stats()
            with _no_collection():
                samples = iteration.timed(self.iterations, self.seconds)
            clock = self._clocks.read()
            peak, reserved = self._memory(iteration)
            at_once = not self.device.is_cuda and self.profiled and self.keep
            one_us = percentiles(samples)[0]
            trace = self._trace(iteration, one_us) if at_once else None
        return Found(samples, peak, reserved, clock, trace)

    def _trace(self, iteration: Iteration, one_us: float) -> Trace:
        """Profile further iterations, of *one_us* each."""
        budget = self.seconds * _PROFILED_SHARE / one_us * US
        count = max(1, min(self.profiled, int(budget)))
        return trace_of(iteration, self.device, count)

    def _memory(self, iteration: Iteration) -> tuple[int, int | None]:
        if self.device.is_cuda:
            return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        return allocated_peak(iteration, self.device, iteration.standing()), None

    def _skip(self, setting: Setting, why: str, say: Say) -> None:
        """Note a setting that cannot be run; a device that has failed is an error."""
        if self.device.is_cuda:
            what = f"{self.subject.name}, {setting}"
            self._fatal.check(what, why, self._line(setting))
        self.skipped.append((setting, why))
        say(f"skipped {self.subject.name}, {setting}: {why}")

    def _row(self, setting: Setting, found: Found) -> WorkloadMeasurement:
        middle, low, high = percentiles(found.samples_us)
        params = self.subject.params_on(self.device, setting)
        batch = setting.batch or self.subject.default_batch
        return WorkloadMeasurement(
            target=self.device.target,
            model=self.subject.name,
            params=params,
            mode=setting.mode,
            runtime=setting.runtime,
            dtype=setting.dtype,
            batch=batch,
            time_us=middle,
            p10_us=low,
            p90_us=high,
            peak_memory_bytes=found.peak_bytes,
            torch=torch.__version__,
            source=self.device.source,
            split=TEST,  # nothing is fitted to whole models
            optimizer=setting.optimizer,
            inputs=setting.inputs,
            n=len(found.samples_us),
            reserved_memory_bytes=found.reserved_bytes,
            sm_clock_mhz=found.clock.sm_clock_mhz,
            throttled=found.clock.throttled,
            attention=setting.attention,
        )


@attrs.frozen
class Found:
    """What iterations of one setting took.

    Attributes:
        samples_us: Wall time of each, unprofiled.
        peak_bytes: Most bytes of tensors at a time.
        reserved_bytes: Most that the allocator held; None on a CPU.
        clock: The device's clock at the end.
        trace: Of further iterations, under the profiler, if they followed at once.

    """

    samples_us: Sequence[float]
    peak_bytes: int
    reserved_bytes: int | None
    clock: Clock
    trace: Trace | None


def _key(row: WorkloadMeasurement) -> Key:
    own = (row.mode, row.runtime, row.dtype, row.batch)
    # Rows of before attention was told are of what PyTorch takes.
    return (
        row.model,
        row.params,
        *own,
        row.optimizer,
        row.inputs,
        row.attention or AUTO,
    )


@contextmanager
def _no_collection() -> Generator[None]:
    """Keep Python from looking for garbage meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
