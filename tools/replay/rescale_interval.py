"""How far off a trace that is carried over to another GPU may be.

As of a predicted model (`time-interval`): the trace runs again with all host times, or
all device times, at either end of their own intervals, and the effects on each time
that is reported add up in quadrature.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import attrs

from perfc.costmodels import HostProfile, load_profile
from perfc.costmodels.machine import ANOTHER_DAY
from perfc.fitting.scores import Z90
from perfc.fitting.trace_host import host_times, session_sigma
from perfc.passes.facts import Interval
from perfc.passes.timing import ErrorParts, OwnEffects, interval_of, shared_effects
from perfc.tools.replay.replay import Replayed, host_seconds
from perfc.traces import Recorded

_OTHERS = "shared"
"""The profile that says how far hosts differ."""

_SECONDS = 1e-6


@attrs.frozen
class HostUncertainty:
    """What is not known of the host's times.

    Attributes:
        session: Sigma of their logarithm from one day to another, on one host; 0 where
            a profile says what they are.
        machine: The same of another machine, or of the profile; 0 for the host that
            the trace was measured on.

    """

    session: float
    machine: float

    @property
    def sigma(self) -> float:
        """Both together."""
        return math.hypot(self.session, self.machine)


@attrs.frozen
class Intervals:
    """The 90 % intervals of a trace on another GPU.

    Attributes:
        total: Of all that is reported, seconds.
        steps: Of each step that is reported, seconds.
        host: What is not known of the host.
        device_sigma: Relative uncertainty of all the device's time.

    """

    total: Interval
    steps: tuple[Interval, ...]
    host: HostUncertainty
    device_sigma: float


def host_uncertainty(
    recorded: Recorded, host: HostProfile | None, *, same_host: bool
) -> HostUncertainty:
    """Return the uncertainty of the host of a trace on another GPU.

    Args:
        recorded: The trace.
        host: The profile whose host times are used; None for those of the trace.
        same_host: Whether the GPU is in the machine that the trace was measured on.
            If not, its host may be another one, of which no more is known than that
            it is one of those that differ as `shared` says.

    """
    if host is not None:
        return HostUncertainty(0.0, host.sigma_shared)
    session = session_sigma([recorded])
    # Two hosts differ by more than one from the mean of all, which is what `shared`
    # says; the same program and PyTorch by less. No data tell one from the other.
    return HostUncertainty(
        session, 0.0 if same_host else load_profile(_OTHERS).sigma_shared
    )


def find_intervals(
    expected: Replayed,
    host: HostUncertainty,
    device_sigma: float,
    where: str,
    again: Callable[[float, float], Replayed],
) -> Intervals:
    """Return the intervals of what is expected.

    Args:
        expected: The trace on the other GPU.
        host: What is not known of its host.
        device_sigma: Relative uncertainty of all the device's time.
        where: Name of the other GPU.
        again: Runs it again with the logarithms of all host times, and of all device
            times, moved by so much.

    """
    runs = functools.cache(again)

    def interval(time_us: Callable[[Replayed], float]) -> Interval:
        known_us = time_us(expected)
        if not known_us > 0:
            return Interval(known_us * _SECONDS, known_us * _SECONDS, 0.0)
        known_s = known_us * _SECONDS

        def moved(host_z: float, device_z: float) -> float:
            there = runs(host_z * host.sigma, device_z * device_sigma)
            return time_us(there) * _SECONDS - known_s

        kernels = {("device", f"kernels carried over to {where}"): 1.0}
        parts = ErrorParts(
            shared_effects(moved),
            kernels,
            device=_again(known_s),
            host_name="the host",
        )
        return interval_of(known_s, parts)

    numbers = range(len(expected.steps))
    return Intervals(
        interval(lambda run: run.simulated_us),
        tuple(interval(functools.partial(_step_us, n)) for n in numbers),
        host,
        device_sigma,
    )


def _again(seconds: float) -> OwnEffects:
    moved = Z90 * ANOTHER_DAY
    return OwnEffects(seconds * math.expm1(moved), -seconds * math.expm1(-moved))


def _step_us(number: int, run: Replayed) -> float:
    return run.steps[number].simulated_us


def own_seconds(recorded: Recorded, host: HostProfile | None) -> dict[int, float]:
    """Return the seconds that the host itself takes, by task.

    When a thread begins is no time that a host takes.
    """
    seconds = host_seconds(recorded, host)
    return {time.task: seconds[time.task] for time in host_times(recorded)}
