"""What a run would measure on a GPU that is not there: parts, rows and seconds.

Iterations and kernels take what perfc predicts. What PyTorch takes around them is
assumed, in the constants below; a probe on the machine shows how far that holds.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence

import attrs

import perfc
from collection import parts
from collection.gpu import device_of
from collection.parts import PARTS, Part, Shapes
from collection.plan import Planned, passes, planned
from perfc.costmodels import KernelTable, Target, cost_models, load_target
from perfc.costmodels.pricing import price_table
from perfc.ir import Kernel, UsageError
from perfc.measure.call_profile import times_of
from perfc.measure.case import Case, Family
from perfc.measure.device import Device
from perfc.measure.suites import suite
from perfc.measurements import MeasurementError

_IMPORT_SECONDS = 10.0
"""PyTorch, a context of CUDA, the first kernels."""

_MODEL_SECONDS = 0.5
"""Making a model, and giving its memory back."""

_CAPTURE_SECONDS, _CAPTURE_ITERATIONS = 0.2, 4
_PROFILER_SECONDS, _PROFILER_ITERATIONS = 0.3, 2
_EVENT_SECONDS, _EVENTS = 40e-6, 8
"""Seconds to write, read and pack an event of a trace; events per launch."""

_HOST_SECONDS = 15e-6
"""A call from an idle device and the wait for it."""

_NODE_SECONDS = 10e-6
"""A node of a graph: captured and instantiated."""

_OF_CALL = 20e-6
"""The kernels of a call that has several, beside their bytes."""

_SET_SECONDS = 150e-6
"""Making a set of operands."""

_SHAPE_SECONDS = 3e-3
"""Making the first set, reading the clock, writing a row."""

_PROFILED_SHAPE_SECONDS = 0.01
"""Its share of a profiler's start."""


@attrs.frozen
class Line:
    """What a part would measure.

    Attributes:
        part: Its name.
        budget: Seconds that it has.
        seconds: That it takes, as far as the budget goes.
        rows: What it yields then, and of how much.

    """

    part: str
    budget: float
    seconds: float
    rows: str


def print_estimate(target: str, seconds: float) -> None:
    """Print a line for each part.

    Raises:
        UsageError: the target is no GPU that runs CUDA.
        PerfcError: there is no such target.

    """
    lines = estimate(target, seconds)
    print(f"{'part':<22}{'budget, s':>10}{'used, s':>9}  rows")
    for line in lines:
        print(f"{line.part:<22}{line.budget:>10.0f}{line.seconds:>9.0f}  {line.rows}")
    total = sum(line.seconds for line in lines)
    print(f"{'together':<22}{seconds:>10.0f}{total:>9.0f}")


def estimate(name: str, seconds: float) -> list[Line]:
    """Return a line for each part of a run of so many seconds: what it would measure.

    Raises:
        UsageError: the target is no GPU that runs CUDA.
        PerfcError: there is no such target.

    """
    target = load_target(name)
    if not target.device.runs_cuda or target.device.synchronous:
        msg = f"--target {name}: expected a GPU that runs CUDA"
        raise UsageError(msg)
    device = device_of(target)
    scale, spare = seconds / parts.WHOLE_SECONDS, 0.0
    lines: list[Line] = []
    timed: set[Planned] = set()
    for part in PARTS:
        budget = part.seconds * scale + spare
        line = _line(part, budget, target, device, timed)
        spare = budget - line.seconds
        lines.append(line)
    closing = parts.CLOSING_SECONDS * scale
    return [*lines, Line("archive", closing, closing, "")]


def _line(
    part: Part, budget: float, target: Target, device: Device, timed: set[Planned]
) -> Line:
    """Return the line of a part; settings that it times are *timed* then."""
    shapes = getattr(part.measure, "__self__", None)
    if isinstance(shapes, Shapes):
        return _of_shapes(part.name, shapes, budget, target, device)
    if part.measure is parts.unprofiled:
        return _of_workloads(part.name, budget, target, timed)
    if part.measure is parts.workloads:
        return _of_workloads(part.name, budget, target, timed, profiled=True)
    if part.measure is parts.floors:
        return Line(part.name, budget, min(budget, _IMPORT_SECONDS + 5), "12 floors")
    return Line(part.name, budget, budget, "")


def _of_workloads(
    name: str,
    budget: float,
    target: Target,
    timed: set[Planned],
    *,
    profiled: bool = False,
) -> Line:
    """Time what is not *timed* yet, and profile."""
    used, done = 0.0, list[Planned]()
    settings = planned() if profiled else parts.eager_first(planned())
    for setting in settings:
        seconds = 0.0 if setting in timed else timing_seconds(setting, target)
        seconds += profile_seconds(setting, target) if profiled else 0.0
        if used + seconds > budget:
            break
        used += seconds
        done.append(setting)
    timed.update(done)
    models = {setting.name for setting in done}
    rows = f"{len(done)} of {len(settings)} workloads, {len(models)} models"
    return Line(name, budget, used, rows)


def timing_seconds(setting: Planned, target: Target) -> float:
    """Return the seconds to time a setting."""
    report = _report(setting, target)
    iterations = min(parts.ITERATIONS, parts.WORKLOAD_SECONDS / (report.time_us * 1e-6))
    return _run_seconds(setting, report, iterations)


def profile_seconds(setting: Planned, target: Target) -> float:
    """Return the seconds to profile a setting, work on its trace included."""
    report = _report(setting, target)
    events = parts.PROFILED * _EVENTS * int(report.summary["launches"])
    iterations = parts.PROFILED + _PROFILER_ITERATIONS
    ran = _run_seconds(setting, report, iterations)
    return ran + _PROFILER_SECONDS + events * _EVENT_SECONDS


def _run_seconds(setting: Planned, report: perfc.Report, iterations: float) -> float:
    """Return the seconds to make a model and run it for so many iterations."""
    one, fixed = report.time_us * 1e-6, _MODEL_SECONDS
    iterations += parts.WARM_UP
    if setting.runtime == "cudagraph":
        iterations += _CAPTURE_ITERATIONS
        fixed += _CAPTURE_SECONDS
    return fixed + iterations * one


@functools.cache  # timed, then profiled
def _report(setting: Planned, target: Target) -> perfc.Report:
    model = perfc.load(
        setting.model,
        mode=setting.mode,
        optimizer=setting.optimizer or None,
        batch=setting.batch,
    )
    asked = passes(setting.dtype)
    return perfc.analyze(model, target, runtime=setting.runtime, passes=asked)


def _of_shapes(
    name: str, shapes: Shapes, budget: float, target: Target, device: Device
) -> Line:
    cases = suite(shapes.suite, device, shapes.ops)
    if shapes.choose:
        cases = [*shapes.choose(cases)]
    used = rows = done = 0.0
    for seconds, ways in _case_seconds(cases, target, device):
        if used + seconds > budget:
            break
        used, done, rows = used + seconds, done + 1, rows + ways
    text = f"{done:,.0f} of {len(cases):,} shapes, {rows:,.0f} rows"
    return Line(name, budget, used, text)


def _case_seconds(
    cases: Sequence[tuple[Family, Case]], target: Target, device: Device
) -> Iterator[tuple[float, int]]:
    """Yield the seconds that measuring each case takes, and how many rows it gives."""
    kernel_s = _prices([case for _, case in cases], target)
    for (family, case), one in zip(cases, kernel_s, strict=True):
        yield (
            _seconds_of(one, _sets(case, device), graph=family.capturable(case)),
            2,
        )


def _prices(cases: Sequence[Case], target: Target) -> list[float]:
    """Return the seconds of each case; calls of several kernels are priced by bytes."""
    bytes_per_s = target.device.memory.bytes_per_s
    seconds = [_OF_CALL + case.work.bytes / bytes_per_s for case in cases]
    kernels: dict[int, Kernel] = {}
    for index, case in enumerate(cases):
        with contextlib.suppress(MeasurementError):  # no op of measured rows
            kernels[index] = case.kernel
    table = KernelTable([*kernels.values()])
    priced = price_table(table, target, cost_models()).seconds.tolist()
    for index, one in zip(kernels, priced, strict=True):
        seconds[index] = one
    return seconds


def _sets(case: Case, device: Device) -> int:
    moved = max(int(case.work.bytes), 1)
    return max(2, min(2 * device.cache_bytes // moved + 2, 128))


def _seconds_of(one: float, sets: int, *, graph: bool) -> float:
    """Return the seconds to time a case, as `perfc.measure.timing` repeats it."""
    timed = _SHAPE_SECONDS + min(sets * (_SET_SECONDS + one), 0.03 + 2 * one)
    each = one + _HOST_SECONDS
    timed += min(max(5 * each, min(0.02, 200 * each)), max(0.3, each))
    if not graph:
        return timed + _PROFILED_SHAPE_SECONDS + 3 * times_of(each) * each
    nodes = min(max(int(200e-6 / one), sets), 256)
    replay = nodes * one
    return timed + nodes * _NODE_SECONDS + min(max(5 * replay, 0.02), 11 * replay)
