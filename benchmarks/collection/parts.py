"""The parts of a run, in their order, each with its share of the time.

What comes first is worth most, and settings within a part are in order of worth, too:
any beginning of a run is useful.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

import attrs
import torch

from collection.launches import LaunchTable, Workload
from collection.output import Output, OutputError
from collection.plan import Planned
from collection.predicted import setting_text
from collection.sustained import run as run_loads
from collection.sustained_loads import loads_of
from perfc.ir import AttrValue, PerfcError, Record
from perfc.measure.case import Case, Family, Tensors
from perfc.measure.device import Device
from perfc.measure.fatal import DeviceFailedError
from perfc.measure.host import OverheadRun, host_us_of_an_op
from perfc.measure.kernel_run import KernelRun
from perfc.measure.models import Setting, WorkloadRun, find_subject
from perfc.measure.profiled import Trace
from perfc.measure.rounds import Prepared
from perfc.measure.suites import suite
from perfc.measure.timing import Timer
from perfc.measurements import WorkloadMeasurement

Say = Callable[[str], None]
Pair = tuple[Family, Case]
Step = Callable[[WorkloadRun, Sequence[Setting], Say], object]
"""Does something with settings of one model."""

ITERATIONS, WARM_UP, PROFILED = 30, 5, 2
"""Iterations of a workload: timed, to warm up, and profiled."""

_OVERHEAD_ITERATIONS, _ITERATIONS_ON_CPU = 20, 5
WORKLOAD_SECONDS = 1.5
"""Most seconds of the timed iterations of a setting."""

_COPY_BYTES, _SIDE = 8 << 30, 8192
_CPU_COPY_BYTES, _CPU_SIDE = 64 << 20, 1024
"""What the ceilings are measured with: a copy, and a square GEMM."""

_BF16_GEMMS = 100
"""For a check: public rows have many."""

_BAGS = ("embedding_bag", "optimizer_step")


@attrs.define
class Run:
    """A run: the machine, the plan, where it all goes.

    Attributes:
        device: What is measured.
        output: Where it goes.
        plan: Whole workloads, the most useful first.
        say: Tells the user one line, and copies what there is from time to time.
        log: Writes text into the log only.
        ceilings: What the device reached, at the beginning and at the end.
        beside_profiler: Workloads of a GPU that were timed after the profiler had run.
        failed: Models and their settings that did not run: they are not tried again.
        failures: What could not be measured, and why.

    """

    device: Device
    output: Output
    plan: Sequence[Planned]
    say: Say
    log: Say
    ceilings: list[dict[str, object]] = attrs.field(
        factory=list[dict[str, object]], init=False
    )
    beside_profiler: list[str] = attrs.field(factory=list[str], init=False)
    failed: set[tuple[str, Setting]] = attrs.field(
        factory=set[tuple[str, Setting]], init=False
    )
    failures: list[str] = attrs.field(factory=list[str], init=False)


@attrs.frozen
class Part:
    """Something that is measured.

    Attributes:
        name: In the manifest.
        seconds: Of a run of 570 seconds; of others in proportion.
        measure: Does it until a time on the clock of `time.monotonic`.

    """

    name: str
    seconds: float
    measure: Callable[[Run, float], None]


def floors(run: Run, end: float) -> None:
    """Measure the ceilings, and what calls of the runtime take."""
    run.ceilings.append({"when": "begin", **ceilings_of(run.device)})
    _overheads(run, end, models=False)


def overheads(run: Run, end: float) -> None:
    """Measure what the host takes around kernels."""
    _overheads(run, end, models=True)


def _overheads(run: Run, end: float, *, models: bool) -> None:
    iterations = _OVERHEAD_ITERATIONS if run.device.is_cuda else _ITERATIONS_ON_CPU
    table = run.output.table("overheads")
    host = OverheadRun(run.device, table, iterations=iterations)
    with_flush(run, host.flush)
    if models:
        host.measure(run.say)
    else:
        host.measure_floors()


def unprofiled(run: Run, end: float) -> None:
    """Time iterations before the profiler has run for the first time.

    CUPTI stays attached after it: an op then takes the host up to 40 % longer.
    """
    measure_workloads(run, eager_first(run.plan), end, WorkloadRun.time)


def eager_first(plan: Iterable[Planned]) -> Sequence[Planned]:
    """Return a plan in the order of timing: graphs hardly wait for the host."""
    return sorted(plan, key=lambda planned: planned.runtime != "eager")


def workloads(run: Run, end: float) -> None:
    """Time what there was no time for; then profile all, and keep when kernels ran."""

    def late(measured: WorkloadRun, settings: Sequence[Setting], say: Say) -> None:
        before = len(measured.rows)
        try:
            measured.time(settings, say)
        finally:
            if run.device.is_cuda:
                run.beside_profiler += map(setting_text, measured.rows[before:])

    measure_workloads(run, run.plan, end, late)
    measure_workloads(run, run.plan, end, WorkloadRun.profile)


def measure_workloads(  # noqa: PLR0913 - two of them as the window has them
    run: Run,
    plan: Iterable[Planned],
    end: float,
    step: Step,
    *,
    prefix: str = "",
    iterations: int = ITERATIONS,
) -> None:
    """Take a step of workloads into the tables whose names begin with *prefix*."""
    launches = LaunchTable(run.output.table(f"{prefix}launches"))
    for model, settings in groupby(plan, lambda planned: planned.model):
        if time.monotonic() > end:
            return
        subject = find_subject(model)
        asked = [subject.settled(_setting(one), run.device) for one in settings]
        chosen = [setting for setting in asked if (model, setting) not in run.failed]

        def keep(row: WorkloadMeasurement, trace: Trace) -> None:
            launches.add(Workload.of(row), trace.events)
            run.output.add_trace(f"{prefix}{_trace_name(row)}", trace.text)

        measured = WorkloadRun(
            run.device,
            subject,
            run.output.table(f"{prefix}workloads"),
            iterations=iterations,
            seconds=WORKLOAD_SECONDS,
            profiled=PROFILED,
            keep=keep,
            deadline=end,
        )
        with_flush(run, measured.flush, launches.write)
        try:
            step(measured, chosen, run.say)
        except (DeviceFailedError, OutputError):
            raise
        except PerfcError as error:  # of this model; the others are measured
            run.say(f"{model}: {error}")
        run.failed |= {(model, setting) for setting, _ in measured.skipped}
        run.failures += [f"{model}, {s}: {why}" for s, why in measured.skipped]


def _setting(planned: Planned) -> Setting:
    return Setting(
        batch=planned.batch,
        mode=planned.mode,
        optimizer=planned.optimizer,
        dtype=planned.dtype,
        runtime=planned.runtime,
        inputs="host-pinned",
        attention=planned.attention,
    )


def _trace_name(row: WorkloadMeasurement) -> str:
    words = (row.model, str(row.batch), row.mode, row.optimizer, row.dtype)
    forced = "" if row.attention == "auto" else row.attention
    named = "-".join(word for word in (*words, row.runtime, forced) if word)
    return f"{named}.json.gz"


@attrs.frozen
class Shapes:
    """Kernels that a part measures.

    Attributes:
        suite: By the name that a GPU has it under; a CPU's `full` is `quick`.
        ops: Only these, or all.
        choose: Leaves cases out, or puts them in another order.

    """

    suite: str
    ops: tuple[str, ...] = ()
    choose: Callable[[Sequence[Pair]], Iterable[Pair]] | None = None

    def measure(self, run: Run, end: float) -> None:
        """Measure them until *end*."""
        table = run.output.table("kernels")
        measured = KernelRun(
            run.device,
            suite_on(run.device, self.suite),
            table,
            ops=self.ops,
            choose=self.choose,
        )
        with_flush(run, measured.flush)
        try:
            measured.measure(end - time.monotonic(), run.say)
        finally:
            run.failures += [f"{case}: {why}" for case, why in measured.skipped]


def suite_on(device: Device, name: str) -> str:
    """Return the suite that a device has time for."""
    return "quick" if name == "full" and not device.is_cuda else name


def few_of_bf16(cases: Sequence[Pair]) -> Iterable[Pair]:
    """Return GEMMs of fp32, TF32 and fp8, then some of bf16."""
    bf16 = [pair for pair in cases if pair[1].dtype == "bf16"]
    rest = [pair for pair in cases if pair[1].dtype not in {"bf16", "fp16"}]
    return rest + bf16[:_BF16_GEMMS]


def others_first(cases: Sequence[Pair]) -> Iterable[Pair]:
    """Return all ops, those that earlier parts have begun last."""
    return sorted(cases, key=lambda pair: pair[1].op in ("gemm", *_BAGS))


WORKLOAD_KERNELS = Shapes("workloads")
BAGS = Shapes("full", _BAGS)
GEMMS = Shapes("full", ("gemm",), few_of_bf16)
OTHERS = Shapes("full", (), others_first)


def sustained(run: Run, end: float) -> None:
    """Measure clock and watts while the device is busy for seconds."""
    table = run.output.table("sustained")
    run_loads(loads_of(run.device), run.device, end, table, run.say)


def ceilings_again(run: Run, end: float) -> None:
    """Measure the ceilings once more: a board that has changed shows."""
    run.ceilings.append({"when": "end", **ceilings_of(run.device)})


PARTS = (
    Part("unprofiled workloads", 125, unprofiled),
    Part("floors", 18, floors),
    Part("overheads", 15, overheads),
    Part("workloads", 120, workloads),
    Part("workload kernels", 85, WORKLOAD_KERNELS.measure),
    Part("embedding bags", 50, BAGS.measure),
    Part("GEMMs", 35, GEMMS.measure),
    Part("other kernels", 50, OTHERS.measure),
    Part("sustained", 58, sustained),
    Part("ceilings", 4, ceilings_again),
)
"""In their order; what is left of 570 seconds writes the archive."""

WHOLE_SECONDS = 570.0
CLOSING_SECONDS = WHOLE_SECONDS - sum(part.seconds for part in PARTS)


def with_flush(run: Run, *flush: Callable[[], None]) -> None:
    """Let what is published be written by these from now on."""
    run.output.flushers[:] = flush


def ceilings_of(device: Device) -> dict[str, object]:
    """Return the rate of a large copy and of a large GEMM, and the clock there.

    Beside them, what the host takes for an op: more once the profiler has run, and
    CUPTI stays attached.
    """
    host_us = host_us_of_an_op(device)
    nbytes = _COPY_BYTES if device.is_cuda else _CPU_COPY_BYTES
    side = _SIDE if device.is_cuda else _CPU_SIDE
    dtype = "bf16" if device.is_cuda else "fp32"
    copied = _timed(device, "memcpy", "fp32", {"bytes": nbytes, "kind": "d2d"})
    sizes: Mapping[str, AttrValue] = {
        "b": 1,
        "m": side,
        "n": side,
        "k": side,
        "layout": "nn",
    }
    gemm = _timed(device, "gemm", dtype, sizes)
    return {
        "copy_bytes": nbytes,
        "copy_us": copied[0],
        "copy_gb_per_s": 2 * nbytes / copied[0] / 1e3,
        "gemm": f"{dtype} {side} x {side} x {side}",
        "gemm_us": gemm[0],
        "gemm_tflops": 2 * side**3 / gemm[0] / 1e6,
        "sm_clock_mhz": gemm[1],
        "host_us_of_an_op": host_us,
    }


def _timed(
    device: Device, op: str, dtype: str, params: Mapping[str, AttrValue]
) -> tuple[float, float | None]:
    family = next(f for f, _ in suite("quick", device, (op,)) if f.op == op)
    timer = Timer(device, 0.05)
    case = Case(op, dtype, Record(params))
    prepared = Prepared.of(family, case, Tensors(device), device)
    prepared.visit(timer)
    last = prepared.result()[-1]
    del prepared
    free_memory()
    return last.median_us, last.clock.sm_clock_mhz


def free_memory() -> None:
    """Give back what a part took, also one that was cut off.

    Raises:
        DeviceFailedError: the GPU does nothing any more.

    """
    gc.collect()
    if torch.cuda.is_available():
        check_device()


def check_device() -> None:
    """Find out whether the GPU still works.

    Raises:
        DeviceFailedError: it does not.

    """
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        msg = f"the GPU failed: {first}"
        raise DeviceFailedError(msg) from None
