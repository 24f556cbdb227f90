"""The pass `time-interval`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Estimate
from perfc.ir import AnyKey, Kernel, Program
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import (
    CRITICAL_PATH,
    HOSTED,
    INTERVAL,
    KERNEL_COST,
    SCHEDULE,
    HostedLaunches,
    Interval,
)
from perfc.passes.timing.task_durations import Sources, sources
from perfc.passes.timing.timeline import TIMELINE, Timeline, finish_s

T = TypeVar("T")
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_Z = 1.6448536269514722
"""95th percentile of the standard normal distribution."""


_MOST = 1 - 2.0**-52
"""A time can fall by no more than this share: the low end stays above 0."""


@attrs.frozen
class TimeInterval(Pass):
    """Find the 90 % interval of the time, without sampling.

    Durations are taken as log-normal around their estimates; durations that the
    source states, launch latencies and gaps as exact. Two kinds of error add up,
    in quadrature of their effects on the logarithm of the time, each side alone:

    - What all host times share, and what the kernels of each cost model share. The
      timeline is solved again with host times, or device times, at their 95th or
      5th percentile, so that a bottleneck that moves between host and device is
      seen. Cost models err independently: each is moved in proportion to its part
      in the uncertainty of the summed device time (the design point of a
      first-order reliability analysis), which is quadrature for that sum. Where
      host and device are balanced, lowering one of them has no effect, yet both
      may be lower: the low side is at least 1/sqrt(2) of the effect of lowering
      both, which is what they come to in a plain sum of equals.
    - What each host task and each kernel signature has of its own: to first order,
      along the critical path. All launches of one signature err alike.

    At most five times the cost of a schedule; where only the host or only the
    device decides the time, three times; where neither does, twice.
    """

    name: ClassVar[str] = "time-interval"
    requires: ClassVar[frozenset[AnyKey]] = frozenset(
        {SCHEDULE, TIMELINE, HOSTED, KERNEL_COST, CRITICAL_PATH}
    )
    provides: ClassVar[frozenset[AnyKey]] = frozenset({INTERVAL})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Find it."""
        path = ctx.get(CRITICAL_PATH, program)
        if path.time_s == 0:
            ctx.set(INTERVAL, program, Interval(0.0, 0.0, 0.0))
            return
        hosted = ctx.get(HOSTED, program)
        duration_s = ctx.get(SCHEDULE, program).durations_s
        timeline = ctx.get(TIMELINE, program)
        found = [sources(graph) for graph in timeline.graphs]
        host = _host(timeline, hosted, found)
        costs = ctx.get(KERNEL_COST, program)
        device = _device(timeline, costs, found)
        shared = _moved_timeline(timeline, path.time_s, duration_s, host, device)
        on_path = np.zeros(len(duration_s), dtype=np.bool_)
        on_path[path.task_numbers] = True
        host_own = _own_effects(host, duration_s, on_path)
        device_own = _own_effects(device, duration_s, on_path)
        interval = interval_of(path.time_s, shared, host_own, device_own)
        ctx.set(INTERVAL, program, interval)


@attrs.frozen(eq=False)
class _Estimated:
    """The tasks of host or device that take as long as some model says.

    Attributes:
        task: Flat numbers.
        model: Number of the model; its tasks share one error.
        shared: Sigma of that error.
        signature: Number of the signature; its tasks share another error.
        own: Sigma of that one.

    """

    task: Indices
    model: Indices
    shared: Floats
    signature: Indices
    own: Floats


@attrs.frozen
class SharedEffects:
    """Seconds by which shared errors move a time, each at least 0.

    Attributes:
        host_up_s: Later, if the host is slower.
        device_up_s: Later, if the device is slower.
        down_s: Earlier, if both are faster.

    """

    host_up_s: float
    device_up_s: float
    down_s: float


@attrs.frozen
class _Own:
    """Seconds by which errors that are not shared move a time."""

    up_s: float
    down_s: float


_NONE = _Own(0.0, 0.0)


def _host(
    timeline: Timeline, hosted: Sequence[HostedLaunches], found: Sequence[Sources]
) -> _Estimated:
    """Host tasks: one model, and every task its own signature."""
    counts = [len(f.host) for f in found]
    task = _joined([f.host + o for f, o in zip(found, timeline.offsets, strict=True)])
    return _Estimated(
        task,
        np.zeros(len(task), dtype=np.intp),
        _repeated([h.sigma_shared for h in hosted], counts),
        np.arange(len(task)),
        _repeated([h.sigma_independent for h in hosted], counts),
    )


def _device(
    timeline: Timeline, costs: Sequence[Estimate], found: Sequence[Sources]
) -> _Estimated:
    """Kernels, copies and collectives."""
    models: dict[str, int] = {}
    signatures: dict[Kernel, int] = {}
    model = [_numbers(models, cost.model) for cost in costs]
    if len(costs) == 1:  # no other class has the same signatures
        signature = [np.arange(len(costs[0]))]
    else:
        signature = [_numbers(signatures, graph.kernels) for graph in timeline.graphs]
    kernel = [f.kernel for f in found]
    return _Estimated(
        _joined([f.device + o for f, o in zip(found, timeline.offsets, strict=True)]),
        _joined([m[k] for m, k in zip(model, kernel, strict=True)]),
        np.concatenate([c.sigma_shared[k] for c, k in zip(costs, kernel, strict=True)]),
        _joined([s[k] for s, k in zip(signature, kernel, strict=True)]),
        np.concatenate(
            [c.sigma_independent[k] for c, k in zip(costs, kernel, strict=True)]
        ),
    )


def _repeated(values: Sequence[float], counts: Sequence[int]) -> Floats:
    """Repeat each of *values* so often; of one value no copies are made."""
    if len(values) == 1:
        return np.broadcast_to(np.float64(values[0]), counts[0])
    return np.repeat(values, counts)


def _joined(columns: Sequence[Indices]) -> Indices:
    return np.concatenate(columns)


def _numbers(known: dict[T, int], items: Sequence[T]) -> Indices:
    """Number *items* by value, as *known* has them, adding the new ones."""
    return np.array([known.setdefault(i, len(known)) for i in items], dtype=np.intp)


def _moved_timeline(
    timeline: Timeline,
    time_s: float,
    duration_s: Floats,
    host: _Estimated,
    device: _Estimated,
) -> SharedEffects:
    host_sigma = _design_point(host, duration_s)
    device_sigma = _design_point(device, duration_s)

    def moved(host_z: float, device_z: float) -> float:
        moved_s = host_z * host_sigma
        moved_s += device_z * device_sigma
        if not moved_s.any():
            return 0.0
        np.exp(moved_s, out=moved_s)
        moved_s *= duration_s
        return finish_s(timeline, array("d", moved_s.tobytes())) - time_s

    return shared_effects(moved)


def shared_effects(moved: Callable[[float, float], float]) -> SharedEffects:
    """Return how errors that are shared move a time.

    Args:
        moved: By how many seconds the time changes if what all host times share is off
            by so many sigmas, and what all device times share; it is asked five times
            at most.

    """
    # A time is a maximum of sums, so it is convex: what raising does not show,
    # lowering does not show either.
    host_up, device_up = max(moved(_Z, 0.0), 0.0), max(moved(0.0, _Z), 0.0)
    host_down = max(-moved(-_Z, 0.0), 0.0) if host_up else 0.0
    device_down = max(-moved(0.0, -_Z), 0.0) if device_up else 0.0
    if not (host_up or device_up):
        return SharedEffects(0.0, 0.0, 0.0)
    if not (host_up and device_up):
        return SharedEffects(host_up, device_up, host_down + device_down)
    both = max(-moved(-_Z, -_Z), 0.0)
    down = max(math.hypot(host_down, device_down), both / math.sqrt(2))
    return SharedEffects(host_up, device_up, min(down, both))


def _design_point(rows: _Estimated, duration_s: Floats) -> Floats:
    """Return how far each task moves when the sum of all moves by one sigma.

    The unit is the logarithm of the task's duration.
    """
    weight = np.bincount(rows.model, duration_s[rows.task] * rows.shared)
    total = math.hypot(*weight)
    sigma = np.zeros(len(duration_s))
    if total:
        sigma[rows.task] = rows.shared * (weight / total)[rows.model]
    return sigma


def _own_effects(
    rows: _Estimated, duration_s: Floats, on_path: NDArray[np.bool_]
) -> _Own:
    chosen = on_path[rows.task]
    signature = rows.signature[chosen]
    seconds = np.bincount(signature, duration_s[rows.task[chosen]])
    sigma = np.zeros(len(seconds))
    sigma[signature] = rows.own[chosen]
    up, down = seconds * np.expm1(_Z * sigma), seconds * np.expm1(-_Z * sigma)
    return _Own(math.sqrt(up @ up), math.sqrt(down @ down))


def interval_of(
    time_s: float, shared: SharedEffects, host: _Own = _NONE, device: _Own = _NONE
) -> Interval:
    """Return the 90 % interval of a time above 0, effects added in quadrature."""
    up = [shared.host_up_s, host.up_s, shared.device_up_s, device.up_s]
    logs = [math.log1p(effect / time_s) for effect in up]
    down = [shared.down_s, host.down_s, device.down_s]
    low = math.hypot(*(math.log1p(-min(d / time_s, _MOST)) for d in down))
    variance = math.fsum(log * log for log in logs)
    return Interval(
        time_s * math.exp(-low),
        time_s * math.exp(math.sqrt(variance)),
        (logs[2] ** 2 + logs[3] ** 2) / variance if variance else 0.0,
    )
