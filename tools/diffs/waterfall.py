"""Steps from one time to another, whose sum is the difference."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import attrs

from perfc.tools.diffs.matching import Pair, differs
from perfc.tools.diffs.side import Segment, SideNode

BY = ("op", "module", "phase", "kernel", "overhead")
"""What steps are made by."""

ROUNDING = "rounding"
"""The step of what sums of floats leave."""

_DEVICE = frozenset({"kernel", "copy", "comm"})
_HOST = frozenset({"host", "sync"})
_TOLD = 0.01
"""Share of the largest reason of a step that others have which are told."""


@attrs.frozen
class Step:
    """A step of the waterfall.

    Attributes:
        name: Of the op, the module, ...
        by: One of `BY`.
        delta_us: Time of the head less that of the base.
        reason: Why, the largest reason first: `added`, `removed`, `shape`, `dtype`,
            `launches` (more or fewer), `kernel` (others, or the same ones take another
            time), `host` (it takes another time around them) or `schedule` (all of it
            takes as long, but another part of it decides the time, or waits differ).

    """

    name: str
    by: str
    delta_us: float
    reason: str


def waterfall(
    pairs: Sequence[Pair],
    by: str,
    difference_us: float,
    *,
    other_host: bool,
) -> list[Step]:
    """Return the steps that are not 0, the largest first.

    Args:
        pairs: The ops of both sides.
        by: One of `BY`.
        difference_us: What the steps sum to.
        other_host: Whether the sides are known to have other hosts; else it is seen
            where the same part of an op takes the host another time.

    """
    other_host = other_host or any(map(_has_other_host, pairs))
    sides: dict[str, tuple[list[float], list[float]]] = {}
    reasons: dict[str, dict[str, list[float]]] = {}
    for pair in pairs:
        for name, segment, sign in (
            (_name(node, segment, by), segment, sign)
            for node, sign in ((pair.base, -1), (pair.head, 1))
            for segment in (node.segments if node is not None else ())
        ):
            us = sides.setdefault(name, ([], []))
            us[sign > 0].append(segment.us)
            why = reasons.setdefault(name, defaultdict(list))
            reason = _reason(pair, segment, other_host=other_host)
            why[reason].append(sign * segment.us)
    deltas = {
        name: math.fsum(head) - math.fsum(base) for name, (base, head) in sides.items()
    }
    steps = [
        Step(name, by, delta_us, _told(reasons[name]))
        for name, delta_us in deltas.items()
        if delta_us
    ]
    rest_us = difference_us - math.fsum(deltas.values())
    if rest_us:
        steps.append(Step(ROUNDING, by, rest_us, ROUNDING))
    return sorted(steps, key=lambda step: (-abs(step.delta_us), step.name))


def _name(node: SideNode | None, segment: Segment, by: str) -> str:
    on_device = segment.kind in _DEVICE
    if by == "kernel":
        return segment.detail if on_device else segment.kind
    if by == "overhead":
        return segment.detail if segment.kind == "host" else segment.kind
    if node is not None and node.counted_as is not None:
        own = node.counted_as[BY.index(by)]
    else:
        own = getattr(node, by)
    return own or f"(no {by})"


def _reason(pair: Pair, segment: Segment, *, other_host: bool) -> str:
    if pair.why:
        return pair.why
    if segment.kind in _DEVICE:
        return "kernel" if pair.is_dearer else "schedule"
    return "host" if other_host and segment.kind in _HOST else "schedule"


def _has_other_host(pair: Pair) -> bool:
    """Whether parts of the host's time that both sides of an op have last unequally."""
    if pair.why or pair.base is None or pair.head is None:
        return False
    own, others = (
        [segment for segment in node.segments if segment.kind == "host"]
        for node in (pair.base, pair.head)
    )
    return any(
        one.detail == other.detail and differs(one.us, other.us)
        for one, other in zip(own, others, strict=False)
    )


def _told(reasons: dict[str, list[float]]) -> str:
    sums = {name: abs(math.fsum(us)) for name, us in reasons.items()}
    least = _TOLD * max(sums.values())
    told = [name for name in sums if sums[name] and sums[name] >= least]
    return ", ".join(sorted(told, key=lambda name: (-sums[name], name)))
