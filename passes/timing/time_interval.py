"""The pass `time-interval`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import ClassVar, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Estimate
from perfc.costmodels.kernels import Floats, Indices
from perfc.ir import AnyKey, Kernel, Program
from perfc.passes import facts
from perfc.passes.base import Pass, PassContext
from perfc.passes.timing.error_factors import ErrorFactors, Factor
from perfc.passes.timing.task_durations import Sources, sources
from perfc.passes.timing.timeline import TIMELINE, Timeline, finish_s

T = TypeVar("T")

Z = 1.6448536269514722
"""95th percentile of the standard normal distribution."""


HOST, KERNEL = "host", "kernel"
"""Factors of host times, and of each kernel by itself."""

ALONE = _HOST_ALONE, _KERNEL_ALONE = "every host time alone", "launches of one kernel"
"""What is off alike, of errors that most tasks have each their own of."""

NEARLY_ALL = 1 - 2.0**-52
"""A time can fall by no more than this share: the low end stays above 0."""


@attrs.frozen
class TimeInterval(Pass):
    """Find the 90 % interval of the time, without sampling.

    Durations are taken as log-normal around their estimates; durations that the
    source states, launch latencies and gaps as exact. Two kinds of error add up,
    in quadrature of their effects on the logarithm of the time, each side alone:

    - What all host times share, and what kernels share (`error_factors`). The
      timeline is solved again with host times, or device times, at their 95th or
      5th percentile, so that a bottleneck that moves between host and device is
      seen. Factors err independently: each is moved in proportion to its part
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
        {facts.SCHEDULE, TIMELINE, facts.HOSTED, facts.KERNEL_COST, facts.CRITICAL_PATH}
    )
    provides: ClassVar[frozenset[AnyKey]] = frozenset({facts.INTERVAL})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Find it."""
        path = ctx.get(facts.CRITICAL_PATH, program)
        if path.time_s == 0:
            ctx.set(facts.INTERVAL, program, facts.Interval(0.0, 0.0, 0.0))
            return
        hosted = ctx.get(facts.HOSTED, program)
        duration_s = ctx.get(facts.SCHEDULE, program).durations_s
        timeline = ctx.get(TIMELINE, program)
        found = [sources(graph) for graph in timeline.graphs]
        counts = [len(f.host) for f in found]
        host = _Host(
            _joined([f.host + o for f, o in zip(found, timeline.offsets, strict=True)]),
            _repeated([h.sigma_shared for h in hosted], counts),
            _repeated([h.sigma_independent for h in hosted], counts),
        )
        costs = ctx.get(facts.KERNEL_COST, program)
        device = _device(timeline, costs, found, ctx.target.device.name)
        seconds = device.seconds(duration_s)
        sigmas = np.zeros((2, len(duration_s)))
        sigmas[0, host.task] = host.shared
        sigmas[1, device.task] = device.factors.moves(seconds)[device.kernel]
        shared = _moved_timeline(timeline, path.time_s, duration_s, sigmas)
        on_path = np.zeros(len(duration_s), dtype=np.bool_)
        on_path[path.task_numbers] = True
        chosen = on_path[host.task]
        host_own = _own_effects(duration_s[host.task[chosen]], host.own[chosen])
        device_own = _own_effects(*device.own_seconds(duration_s, on_path))
        shares = device.factors.shares(seconds)
        parts = ErrorParts(
            shared,
            shares,
            host_own,
            device_own,
            ", ".join(dict.fromkeys(h.profile for h in hosted if h.profile)),
        )
        ctx.set(facts.INTERVAL, program, interval_of(path.time_s, parts))


@attrs.frozen(eq=False)
class _Host:
    """Host tasks that take as long as a profile says, each with an error of its own.

    Attributes:
        task: Flat numbers.
        shared: Sigma of the error that all share.
        own: Sigma of each one's.

    """

    task: Indices
    shared: Floats
    own: Floats


@attrs.frozen(eq=False)
class _Device:
    """Kernels, copies and collectives that take as long as models say.

    Attributes:
        task: Flat numbers.
        kernel: The distinct kernel of each, class after class.
        factors: What kernels share.
        signature: Of each kernel: equal ones of several classes have one error.
        own: Sigma of that, by kernel.

    """

    task: Indices
    kernel: Indices
    factors: ErrorFactors
    signature: Indices
    own: Floats

    def seconds(self, duration_s: Floats) -> Floats:
        """Return the seconds of all launches of each kernel, shape (kernels,)."""
        count = len(self.own)
        found = np.bincount(self.kernel, duration_s[self.task], minlength=count)
        return np.asarray(found, dtype=np.float64)

    def own_seconds(
        self, duration_s: Floats, on_path: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """Return the seconds on the path of each signature, and its own sigma."""
        chosen = on_path[self.task]
        kernel = self.kernel[chosen]
        signature = self.signature[kernel]
        found = np.bincount(signature, duration_s[self.task[chosen]])
        seconds = np.asarray(found, dtype=np.float64)
        sigma = np.zeros(len(seconds))
        sigma[signature] = self.own[kernel]
        return seconds, sigma


@attrs.frozen
class SharedEffects:
    """Seconds by which shared errors move a time, each at least 0.

    Attributes:
        host_up_s: Later, if the host is slower.
        device_up_s: Later, if the device is slower.
        down_s: Earlier, if both are faster.
        host_down_s: Earlier, if the host is faster.
        device_down_s: Earlier, if the device is faster.

    """

    host_up_s: float
    device_up_s: float
    down_s: float
    host_down_s: float = 0.0
    device_down_s: float = 0.0


@attrs.frozen
class OwnEffects:
    """Seconds by which errors that are not shared move a time."""

    up_s: float
    down_s: float


NO_EFFECTS = OwnEffects(0.0, 0.0)


@attrs.frozen(eq=False)
class ErrorParts:
    """What moves a time.

    Attributes:
        shared: What all host times share, and what kernels do.
        shares: Of each factor, in the variance of what kernels share.
        host: What each host time is off alone.
        device: What each kernel is off alone.
        host_name: Whose host times they are.

    """

    shared: SharedEffects
    shares: Mapping[Factor, float]
    host: OwnEffects = NO_EFFECTS
    device: OwnEffects = NO_EFFECTS
    host_name: str = ""


def _device(
    timeline: Timeline,
    costs: Sequence[Estimate],
    found: Sequence[Sources],
    where: str,
) -> _Device:
    signatures: dict[Kernel, int] = {}
    kernels = [graph.kernels for graph in timeline.graphs]
    firsts = [0, *accumulate(map(len, kernels))]
    if len(costs) == 1:  # no other class has the same signatures
        signature = np.arange(len(costs[0]))
    else:
        signature = _joined([_numbers(signatures, table) for table in kernels])
    return _Device(
        _joined([f.device + o for f, o in zip(found, timeline.offsets, strict=True)]),
        _joined([f.kernel + n for f, n in zip(found, firsts, strict=False)]),
        ErrorFactors.of(costs, kernels, where),
        signature,
        np.concatenate([cost.sigma_independent for cost in costs]),
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
    sigmas: Floats,
) -> SharedEffects:
    host_sigma, device_sigma = sigmas

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
    host_up, device_up = max(moved(Z, 0.0), 0.0), max(moved(0.0, Z), 0.0)
    host_down = max(-moved(-Z, 0.0), 0.0) if host_up else 0.0
    device_down = max(-moved(0.0, -Z), 0.0) if device_up else 0.0
    if not (host_up or device_up):
        return SharedEffects(0.0, 0.0, 0.0)
    if not (host_up and device_up):
        down = host_down + device_down
        return SharedEffects(host_up, device_up, down, host_down, device_down)
    both = max(-moved(-Z, -Z), 0.0)
    down = max(math.hypot(host_down, device_down), both / math.sqrt(2))
    down = min(down, both)
    return SharedEffects(host_up, device_up, down, host_down, device_down)


def _own_effects(seconds: Floats, sigma: Floats) -> OwnEffects:
    up, down = seconds * np.expm1(Z * sigma), seconds * np.expm1(-Z * sigma)
    return OwnEffects(math.sqrt(up @ up), math.sqrt(down @ down))


def interval_of(time_s: float, parts: ErrorParts) -> facts.Interval:
    """Return the 90 % interval of a time above 0, effects added in quadrature."""
    shared, host, device = parts.shared, parts.host, parts.device
    up = [shared.host_up_s, host.up_s, shared.device_up_s, device.up_s]
    logs = [math.log1p(effect / time_s) for effect in up]
    down = [shared.down_s, host.down_s, device.down_s]
    lows = [-math.log1p(-min(effect / time_s, NEARLY_ALL)) for effect in down]
    variance = math.fsum(log * log for log in logs)
    return facts.Interval(
        time_s * math.exp(-math.hypot(*lows)),
        time_s * math.exp(math.sqrt(variance)),
        (logs[2] ** 2 + logs[3] ** 2) / variance if variance else 0.0,
        tuple(_factors(parts, logs, lows)),
    )


def _factors(
    parts: ErrorParts, logs: Sequence[float], lows: Sequence[float]
) -> Iterator[facts.TimeFactor]:
    """Yield the factors of a time: what is shared, then what each is off alone."""
    host, host_own, device, device_own = (log / Z for log in logs)
    low, host_low, device_low = (log / Z for log in lows)
    by_host = _host_share(parts.shared)
    on_host = low * math.sqrt(by_host)
    found = [facts.TimeFactor(HOST, parts.host_name, host, on_host)]
    for (name, shared_with), share in parts.shares.items():
        part = math.sqrt(share)
        under = low * math.sqrt(1 - by_host) * part
        found.append(facts.TimeFactor(name, shared_with, device * part, under))
    found.append(facts.TimeFactor(HOST, _HOST_ALONE, host_own, host_low))
    found.append(facts.TimeFactor(KERNEL, _KERNEL_ALONE, device_own, device_low))
    yield from (each for each in found if each.sigma or each.sigma_low)


def _host_share(shared: SharedEffects) -> float:
    one, other = shared.host_down_s**2, shared.device_down_s**2
    if not one + other:  # they are balanced: neither alone makes it earlier
        one, other = shared.host_up_s**2, shared.device_up_s**2
    return one / (one + other) if one + other else 0.0
