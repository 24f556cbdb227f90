"""How probable it is that one side is slower, errors that both share counted once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable

from perfc.passes import timing
from perfc.passes.facts import Interval, TimeFactor
from perfc.tools.diffs.side import Side

_KERNEL = "launches of one kernel"
"""What the error is shared by that each kernel has alone."""


def probability_slower(base: Side, head: Side) -> float:
    """Return how probable it is that the head is slower."""
    if not base.time_us or not head.time_us:
        return 0.5 if base.time_us == head.time_us else float(not base.time_us)
    return timing.probability_shorter(_errors(base), _errors(head))


def _errors(side: Side) -> timing.TimeErrors:
    """Return the errors of a side; a measured one has none.

    A report says what kernels are off alone all together. It is spread over those on
    the critical path by their squared times, so that what both sides launch counts
    once.
    """
    if side.factors is None:
        return timing.TimeErrors(side.time_us, {})
    factors = side.factors
    alone = [each for each in factors if each.shared_with == _KERNEL]
    others = tuple(
        TimeFactor(each.factor, each.shared_with, each.sigma, each.sigma_low)
        for each in factors
        if each.shared_with != _KERNEL
    )
    interval = Interval(side.time_us, side.time_us, 0.0, others)
    found = timing.errors_of_interval(side.time_us, interval)
    sigma = math.hypot(*((each.sigma + each.sigma_low) / 2 for each in alone))
    own: defaultdict[Hashable, float] = defaultdict(float)
    for node in side.nodes:
        key = node.op, node.operands or node.id, node.kernels
        own[key] += math.fsum(s.us for s in node.segments if s.kind == "kernel")
    whole = math.hypot(*own.values())
    spread = {key: sigma * us / whole for key, us in own.items() if us}
    return timing.TimeErrors(found.time_s, {**found.shared, **spread}, found.alone)
