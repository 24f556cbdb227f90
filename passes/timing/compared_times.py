"""What predicted times are off together, and which of them is the shortest.

Two predictions share most of what they are off by: a board, a host, a kernel that both
launch. Their ratio is known better than either, as shared errors count once; no better
than one step that is measured twice.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Floats
from perfc.passes import facts
from perfc.passes.manager import Analysis
from perfc.passes.timing.task_durations import sources
from perfc.passes.timing.time_interval import ALONE, KERNEL
from perfc.passes.timing.timeline import TIMELINE

_DRAWS = 1 << 13
"""Draws of all errors, of which more change no probability by 0.01."""

AGAIN = constants("kernels").number("sigma_repeatability")
"""What one time differs by that is measured twice, whatever is known of it."""

_LEAST = 1e-12
"""Sigma of a ratio below which the times decide."""


@attrs.frozen(eq=False)
class TimeErrors:
    """A predicted time and its errors, each a standard deviation of its logarithm.

    Attributes:
        time_s: The time, or any measure that the time is a factor of.
        shared: By what they are of: times that have the same have them together.
        alone: Of this time alone.

    """

    time_s: float
    shared: Mapping[Hashable, float]
    alone: float = 0.0


def errors_of_interval(time_s: float, interval: facts.Interval) -> TimeErrors:
    """Return the errors of a time as its interval has them, kernels' all alone."""
    shared: dict[Hashable, float] = {}
    alone = [AGAIN]
    for each in interval.factors:
        sigma = (each.sigma + each.sigma_low) / 2
        if each.shared_with in ALONE:
            alone.append(sigma)
        else:
            shared[each.factor, each.shared_with] = sigma
    return TimeErrors(time_s, shared, math.hypot(*alone))


def time_errors(analysis: Analysis) -> TimeErrors:
    """Return the errors of the time of a step, of which kernels' are by signature."""
    time_s = analysis.get(facts.CRITICAL_PATH).time_s
    found = errors_of_interval(time_s, analysis.get(facts.INTERVAL))
    # How far one sigma of each kernel's own error moves the time.
    path, schedule = analysis.get(facts.CRITICAL_PATH), analysis.get(facts.SCHEDULE)
    timeline = analysis.get(TIMELINE)
    seconds = np.zeros(len(timeline))
    seconds[path.task_numbers] = schedule.durations_s[path.task_numbers]
    own: dict[Hashable, float] = {}
    costs = analysis.get(facts.KERNEL_COST)
    for graph, offset, cost in zip(
        timeline.graphs, timeline.offsets, costs, strict=True
    ):
        tasks = sources(graph)
        of_kernels = np.bincount(
            tasks.kernel, seconds[tasks.device + offset], minlength=len(cost)
        )
        moved = of_kernels * cost.sigma_independent / path.time_s
        for kernel in np.flatnonzero(moved).tolist():
            signature = graph.kernels[kernel]
            own[signature] = own.get(signature, 0.0) + float(moved[kernel])
    others = [
        (each.sigma + each.sigma_low) / 2
        for each in analysis.get(facts.INTERVAL).factors
        if each.shared_with in ALONE and each.factor != KERNEL
    ]
    return TimeErrors(time_s, {**found.shared, **own}, math.hypot(AGAIN, *others))


def probabilities_best(times: Sequence[TimeErrors]) -> list[float]:
    """Return how probable it is that each of some times is the shortest.

    Of two that is exact; of more, the share of draws of all errors in which it is.
    Equal times share.
    """
    if len(times) == 2:  # noqa: PLR2004 - a pair has a formula
        first = probability_shorter(*times)
        return [first, 1.0 - first]
    if not times:
        return []
    logs = np.log([each.time_s for each in times])
    effects, alone = _columns(times)
    random = np.random.default_rng(0)
    drawn = random.standard_normal((_DRAWS, effects.shape[1])) @ effects.T
    drawn += random.standard_normal((_DRAWS, len(times))) * alone
    drawn += logs
    shortest = drawn <= drawn.min(axis=1, keepdims=True) + _LEAST
    shares = shortest / shortest.sum(axis=1, keepdims=True)
    found: list[float] = shares.mean(axis=0).tolist()
    return found


def probability_shorter(one: TimeErrors, other: TimeErrors) -> float:
    """Return how probable it is that one time is shorter than another."""
    log = math.log(other.time_s / one.time_s)
    effects, alone = _columns((one, other))
    sigma = math.hypot(*(effects[0] - effects[1]).tolist(), *alone.tolist())
    if sigma < _LEAST:
        return 0.5 if abs(log) < _LEAST else float(log > 0)
    return (1.0 + math.erf(log / sigma / math.sqrt(2))) / 2


def _columns(times: Sequence[TimeErrors]) -> tuple[Floats, Floats]:
    """Return the errors that times share, shape (times, errors), and those alone.

    What all have alike changes no order and is left out.
    """
    owners: dict[Hashable, list[int]] = {}
    for number, each in enumerate(times):
        for key in each.shared:
            owners.setdefault(key, []).append(number)
    squares = np.square([each.alone for each in times])
    columns: list[list[float]] = []
    for key, mine in owners.items():
        column = [each.shared.get(key, 0.0) for each in times]
        if len(mine) == 1:
            squares[mine[0]] += column[mine[0]] ** 2
        elif max(column) > min(column):
            columns.append(column)
    shared = np.array(columns, dtype=np.float64).reshape(len(columns), len(times))
    return shared.T, np.sqrt(squares)
