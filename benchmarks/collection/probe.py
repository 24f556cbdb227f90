"""One case of everything, smallest first: what fails is known before time is spent.

Nothing that fails ends a probe. Tracebacks are in the log.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import torch

from collection import parts
from collection.parts import Part, Run
from collection.plan import Planned
from perfc.measure import (
    SMALL_MODELS,
    Case,
    DeviceFailedError,
    Family,
    OverheadRun,
    Prepared,
    Tensors,
    Timer,
    captured,
    profiled_calls,
    suite,
)

_SECONDS = 0.001
"""Of each way of timing."""

_ITERATIONS = 3
_PREFIX = "probe-"
"""Of tables: rows of a few iterations are no measurement."""

_LOAD_SECONDS = 4.0


def probes(run: Run) -> Sequence[Part]:
    """Return the parts of a probe; their seconds do not matter."""
    tried = (
        ("floors and ceilings", parts.floors),
        ("kernels", _kernels),
        ("captures", _captures),
        ("workloads", _workloads),
        ("overheads", _overheads),
        ("sustained", _sustained),
    )
    return [Part(name, 0.0, measure) for name, measure in tried]


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
                profiled_calls(prepared.calls[:1], run.device, timer.clock())

        passed += _tried(run, str(case), once)
    run.say(f"kernels: {passed} of {len(chosen)} ways to call them passed")


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
    by_model = groupby(sorted(run.plan, key=lambda p: p.model), lambda p: p.model)
    chosen: list[Planned] = []
    for _, settings in by_model:
        found = {(p.mode, p.runtime, p.dtype): p for p in settings}
        chosen += found.values()
    parts.measure_workloads(
        run, chosen, end, prefix=_PREFIX, iterations=_ITERATIONS, profiled=1
    )


def _overheads(run: Run, end: float) -> None:
    """Profile one model's host."""
    table = run.output.table(f"{_PREFIX}overheads")
    host = OverheadRun(run.device, table, SMALL_MODELS[:1], _ITERATIONS)
    host.measure(run.say)


def _sustained(run: Run, end: float) -> None:
    """Run each load for a moment."""
    parts.sustained(run, min(end, time.monotonic() + _LOAD_SECONDS))


def _tried(
    run: Run, what: str, once: Callable[[], None], *, quiet: bool = False
) -> bool:
    """Try something; say what went wrong, its traceback in the log."""
    try:
        once()
    except DeviceFailedError:
        raise
    except Exception as error:  # noqa: BLE001 - the rest is tried, too
        if run.device.is_cuda:
            parts.check_device()
        if not quiet:
            said = str(error).partition("\n")[0]
            run.say(f"FAILED {what}: {type(error).__name__}: {said}")
            run.log(traceback.format_exc())
            run.failures.append(what)
        return False
    return True
