"""Intervals of many times at once, as `time-interval` finds one."""

from __future__ import annotations

import math

import attrs
import numpy as np

from perfc.costmodels.kernels import Flags, Floats, Indices
from perfc.passes.timing.many_schedules import ManySchedules
from perfc.passes.timing.time_interval import NEARLY_ALL, Z

_SIGNS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (-1, -1))
"""Sigmas by which host and device times are off, of each variant of a schedule."""


@attrs.frozen(eq=False)
class ManyErrors:
    """What times of tasks are off by, in many configurations.

    Attributes:
        host: Places of host tasks that take as long as a profile says.
        host_shared: Sigma of the error that all of them share: a number, or one a
            configuration.
        host_own: Sigma of each one's.
        device: Places of kernels, copies and collectives that models price.
        kernel: The distinct kernel of each.
        shared: Errors that kernels share: number of the factor, and sigma, shape
            (kernels, configurations) each.
        own: Sigma of each kernel's own error, of that shape.
        first: The first kernel that each one is equal to, of that shape: equal ones
            err alike.

    """

    host: Indices
    host_shared: Floats
    host_own: Floats
    device: Indices
    kernel: Indices
    shared: tuple[tuple[Indices, Floats], ...]
    own: Floats
    first: Indices

    def moves(self, seconds: Floats) -> Floats:
        """Return how far each kernel moves, as `ErrorFactors.moves`.

        Args:
            seconds: What all launches of each take, shape (kernels, configurations).

        """
        column = np.arange(len(seconds[0]))
        weights = [
            _summed(factor, column, seconds * sigma) for factor, sigma in self.shared
        ]
        whole = np.sqrt(
            np.sum([np.square(one).sum(axis=0) for one in weights], axis=0)
            if weights
            else np.zeros(len(column))
        )
        whole[whole == 0] = np.inf
        found = np.zeros_like(seconds)
        for (factor, sigma), one in zip(self.shared, weights, strict=True):
            found += (one / whole)[factor, column] * sigma
        return found

    def variants(self, seconds: Floats) -> Floats:
        """Return the seconds of places where shared errors move them, by `_SIGNS`.

        Args:
            seconds: What they are to take, shape (places, configurations).

        """
        count = len(self.own)
        per_kernel = np.zeros((count, seconds.shape[1]))
        np.add.at(per_kernel, self.kernel, seconds[self.device])
        sigma = Z * self.moves(per_kernel)
        found = np.repeat(seconds[:, None], len(_SIGNS), axis=1)
        host = {sign: np.exp(sign * Z * self.host_shared) for sign in (-1, 0, 1)}
        device = {sign: np.exp(sign * sigma)[self.kernel] for sign in (-1, 1)}
        for at, (on_host, on_device) in enumerate(_SIGNS):
            found[self.host, at] *= host[on_host]
            if on_device:
                found[self.device, at] *= device[on_device]
        return found


def _summed(factor: Indices, column: Indices, amounts: Floats) -> Floats:
    found = np.zeros((int(factor.max(initial=-1)) + 1, len(column)))
    np.add.at(found, (factor, column), amounts)
    return found


def intervals_s(
    schedules: ManySchedules, seconds: Floats, passed: Flags, errors: ManyErrors
) -> tuple[Floats, Floats]:
    """Return the 5th and 95th percentile of each time, in seconds.

    Args:
        schedules: Those of `errors.variants(seconds)`.
        seconds: What places take, shape (places, configurations).
        passed: Whether the critical path passes each.
        errors: What they are off by.

    """
    times_s: list[Floats] = [*schedules.times_s]
    time_s, *moved = times_s
    host_up, device_up = (np.maximum(one - time_s, 0.0) for one in moved[:2])
    host_down, device_down, both = (np.maximum(time_s - one, 0.0) for one in moved[2:])
    host_down[host_up == 0] = 0.0
    device_down[device_up == 0] = 0.0
    balanced = np.maximum(np.hypot(host_down, device_down), both / math.sqrt(2))
    down = host_down + device_down
    moves = (host_up > 0) & (device_up > 0)
    down[moves] = np.minimum(balanced, both)[moves]
    on_path = np.where(passed, seconds, 0.0)
    host_own = _own(on_path[errors.host], errors.host_own)
    per_kernel = np.zeros_like(errors.own)
    column = np.arange(len(time_s))
    first = errors.first[errors.kernel], column
    np.add.at(per_kernel, first, on_path[errors.device])
    device_own = _own(per_kernel, errors.own)
    ups = (host_up, host_own[0], device_up, device_own[0])
    downs = (down, host_own[1], device_own[1])
    safe_s = np.where(time_s > 0, time_s, 1.0)
    up = sum(np.square(np.log1p(effect / safe_s)) for effect in ups)
    low = sum(
        np.square(np.log1p(-np.minimum(effect / safe_s, NEARLY_ALL)))
        for effect in downs
    )
    return time_s * np.exp(-np.sqrt(low)), time_s * np.exp(np.sqrt(up))


def _own(seconds: Floats, sigma: Floats) -> tuple[Floats, Floats]:
    up, down = seconds * np.expm1(Z * sigma), seconds * np.expm1(-Z * sigma)
    return np.sqrt(np.square(up).sum(axis=0)), np.sqrt(np.square(down).sum(axis=0))
