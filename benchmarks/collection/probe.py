"""One case of everything, smallest first: what fails is known before time is spent.

Nothing that fails ends a probe. Tracebacks are in the log.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

import torch

from collection import parts
from collection.parts import Part, Run
from collection.plan import Planned
from collection.sustained import Load
from collection.sustained_loads import loads_of
from perfc.measure.call_profile import profiled_calls
from perfc.measure.capture import captured
from perfc.measure.case import Call, Case, Family, Tensors
from perfc.measure.clocks import Clock
from perfc.measure.fatal import DeviceFailedError, Fatal
from perfc.measure.host import SMALL_MODELS, OverheadRun, host_us_of_an_op
from perfc.measure.models import WorkloadRun
from perfc.measure.rounds import Prepared
from perfc.measure.suites import suite
from perfc.measure.timing import Timer

_SECONDS = 0.001
"""Seconds of each way of timing."""

_ITERATIONS = 3
_PREFIX = "probe-"
"""Prefix of the names of tables: rows of a few iterations are no measurement."""

_LOAD_SECONDS = 4.0
_PROFILES = 5
_TEARDOWN = "TEARDOWN_CUPTI"


def probes(run: Run) -> Sequence[Part]:
    """Return the parts of a probe; their seconds are kept from those before."""
    return (
        Part("floors and ceilings", 0.0, parts.floors),
        Part("kernels", 0.0, _kernels),
        Part("captures", 1.0, _captures),
        Part("overheads", 5.0, _overheads),
        Part("sustained", 5.0, _sustained),
        Part("workloads", 15.0, _workloads),
        Part("profiler", 4.0, _profiler),
    )


def _kernels(run: Run, end: float) -> None:
    """Run the smallest case of every way to call every family."""
    names = (parts.suite_on(run.device, "full"), "workloads")
    cases = [pair for name in names for pair in suite(name, run.device)]
    chosen = sorted(smallest(cases), key=lambda pair: pair[0].memory_bytes(pair[1]))
    timer, tensors = Timer(run.device, _SECONDS), Tensors(run.device)
    passed = 0
    for family, case in chosen:
        if time.monotonic() > end:
            break

        def once(family: Family = family, case: Case = case) -> None:
            prepared = Prepared.of(family, case, tensors, run.device)
            prepared.visit(timer)
            if prepared.needs_profiler(run.device):
                _profiled(run, prepared.profiled(), timer.clock())

        passed += _tried(run, str(case), once)
    run.say(f"kernels: {passed} of {len(chosen)} ways to call them passed")


def _profiled(run: Run, call: Call, clock: Clock) -> None:
    """Profile a call.

    Raises:
        RuntimeError: it fails, or the profiler does not see what it launches.

    """
    if profiled_calls([call], run.device, clock) == [None]:
        msg = "the profiler saw no kernel"
        raise RuntimeError(msg)


def smallest(
    cases: Iterable[tuple[Family, Case]],
) -> Iterable[tuple[Family, Case]]:
    """Return of each family, dtype, phase, algorithm and kind the smallest case."""
    best: dict[tuple[object, ...], tuple[Family, Case]] = {}
    for family, case in cases:
        words = ("phase", "algorithm", "kind", "optimizer", "layout", "pinned")
        named = (case.params.get(word) for word in words)
        key = (type(family).__name__, case.dtype, *named)
        known = best.get(key)
        if known is None or _bytes((family, case)) < _bytes(known):
            best[key] = (family, case)
    return best.values()


def _bytes(pair: tuple[Family, Case]) -> int:
    return pair[0].memory_bytes(pair[1])


def _captures(run: Run, end: float) -> None:
    """Let a capture fail, and see whether the next one works."""
    if not run.device.is_cuda:
        return
    one = torch.zeros(1, device="cuda")

    def waits() -> None:
        with captured(torch.cuda.CUDAGraph()):
            one.add_(1)
            one.item()

    def works() -> None:
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            one.add_(1)
        graph.replay()
        torch.cuda.synchronize()

    if _tried(run, "a capture that waits for the device", waits, quiet=True):
        run.say("a capture that waits for the device did not fail")
    _tried(run, "a capture after one that failed", works)


def _workloads(run: Run, end: float) -> None:
    """Run each model, in both modes and runtimes, for three iterations."""
    chosen = one_of_each(run.plan)
    parts.measure_workloads(
        run, chosen, end, WorkloadRun.measure, prefix=_PREFIX, iterations=_ITERATIONS
    )


def one_of_each(plan: Iterable[Planned]) -> Sequence[Planned]:
    """Return a setting of each mode, runtime and dtype: all models have turns."""
    models: dict[str, dict[tuple[str, ...], Planned]] = {}
    for one in plan:
        ways = models.setdefault(one.model, {})
        ways[one.mode, one.runtime, one.dtype] = one
    turns = zip_longest(*(ways.values() for ways in models.values()))
    return [one for turn in turns for one in turn if one is not None]


def _overheads(run: Run, end: float) -> None:
    """Profile one model's host."""
    table = run.output.table(f"{_PREFIX}overheads")
    host = OverheadRun(run.device, table, SMALL_MODELS[:1], _ITERATIONS)
    host.measure(run.say)


def _sustained(run: Run, end: float) -> None:
    """Run each load once, then as many as have time for a moment, NVML beside them."""
    for load in loads_of(run.device):

        def once(load: Load = load) -> None:
            if load.make is not None:
                load.make()()
                run.device.synchronize()

        _tried(run, f"load {load.name}", once)
        parts.free_memory()
    parts.sustained(run, min(end, time.monotonic() + _LOAD_SECONDS))


def _profiler(run: Run, end: float) -> None:
    """See how much slower the host is after a profile, and whether CUPTI can go.

    It stays attached unless `TEARDOWN_CUPTI` is 1. That has crashed where there are
    CUDA graphs, so this comes last: all else is kept.
    """
    if not run.device.is_cuda:
        return
    one, graph = torch.zeros(1, device="cuda"), torch.cuda.CUDAGraph()
    one.add_(1)
    torch.cuda.synchronize()
    with captured(graph):
        one.add_(1)

    def profiles() -> None:
        for _ in range(_PROFILES):
            _profiled(run, lambda: one.add_(1), Clock())
            _profiled(run, graph.replay, Clock())

    _told(run, "CUPTI as the environment has it", profiles)
    before = os.environ.get(_TEARDOWN)
    os.environ[_TEARDOWN] = "1"
    try:
        run.say(f"with {_TEARDOWN}=1: if nothing follows, that crashes")
        _told(run, f"{_TEARDOWN}=1", profiles)
    finally:
        os.environ.pop(_TEARDOWN)
        if before is not None:
            os.environ[_TEARDOWN] = before


def _told(run: Run, how: str, profiles: Callable[[], None]) -> None:
    """Profile, and tell what that takes and what an op takes after it."""
    begin = time.monotonic()
    if not _tried(run, f"profiles of calls and graphs, {how}", profiles):
        return
    each_s = (time.monotonic() - begin) / (2 * _PROFILES)
    host_us = host_us_of_an_op(run.device)
    run.ceilings.append({"when": how, "host_us_of_an_op": host_us})
    at_first = run.ceilings[0].get("host_us_of_an_op")
    run.say(f"{how}: {each_s:.2f} s a profile, then {host_us:.2f} us of the host an op")
    run.say(f"before all profiles an op took {at_first} us of the host")


def _tried(
    run: Run, what: str, once: Callable[[], None], *, quiet: bool = False
) -> bool:
    """Try something; say what went wrong, its traceback in the log.

    What made the GPU fail is not tried again when the probe begins anew.
    """
    fatal = Fatal(run.output.table(f"{_PREFIX}tried"))
    if what in fatal.known():
        run.say(f"{what} made the GPU fail: left out")
        return False
    try:
        once()
    except DeviceFailedError:
        raise
    except Exception as error:  # noqa: BLE001 - the rest is tried, too
        said = str(error).partition("\n")[0]
        if run.device.is_cuda:
            fatal.check(what, f"{type(error).__name__}: {said}", what)
        if not quiet:
            run.say(f"FAILED {what}: {type(error).__name__}: {said}")
            run.log(traceback.format_exc())
            run.failures.append(what)
        return False
    return True
