"""Steps of a trace that marks none, as other labels or its launches tell them.

The profiler marks steps if its `step()` is called. Where it was not, a training step
ends where the optimizer does, whose label PyTorch writes. Without an optimizer, the
host repeats itself: from one copy of inputs to the device, or wait for all of it, to
the next it launches the same. What repeats in between are layers, which are no steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import attrs

from perfc.traces.events import DeviceWork, HostOp, Step, Thread, Trace
from perfc.traces.runtime import Waits, waits_for

_OPTIMIZER = "Optimizer.step#"
_TO_DEVICE = "Memcpy HtoD"
_FEWEST = 3
"""Equal stretches that are told to be steps."""

_MOST_APART = 16
"""Copies or waits of one kind that a step has at most."""

_Token: TypeAlias = tuple[object, ...]


@attrs.frozen
class ToldSteps:
    """Steps, and what tells them.

    Attributes:
        steps: In order; none if nothing tells them.
        by: What they are told by, as a user reads it.

    """

    steps: tuple[Step, ...]
    by: str


def told_steps(trace: Trace) -> ToldSteps:
    """Return the steps of a trace that marks none.

    What precedes the first border, and follows the last one, may be a part of a step
    only, and is of none.
    """
    found = _by_optimizer(trace)
    if found.steps:
        return found
    # Tell steps by copies to the device, or waits for it, that are always alike apart.
    # The thread is the one that launches most.
    works = {work.correlation: work for work in trace.works}
    launching = Counter(c.thread for c in trace.calls if c.correlation in works)
    if not launching:
        return ToldSteps((), "")
    ((thread, _),) = launching.most_common(1)
    done = [*_launches(trace, thread, works)]
    borders = Counter(one.token for one in done if one.is_border)
    # Rare ones first: what comes once a step needs no thought of what is beside it.
    for token, count in sorted(borders.items(), key=lambda item: item[1]):
        places = [at for at, one in enumerate(done) if one.token == token]
        for apart in range(1, min(_MOST_APART, (count - 1) // _FEWEST) + 1):
            begins = _alike(done, places, apart)
            if begins:
                name = "waits for the device" if len(token) == 1 else "copies to it"
                borders_us = [done[at].at_us for at in begins]
                by = f"launches that repeat between {name}"
                return _steps(thread, borders_us, by)
    return ToldSteps((), "")


def _steps(thread: Thread, borders_us: Sequence[float], by: str) -> ToldSteps:
    steps = (
        Step(f"step#{number}", number, start_us, end_us, thread)
        for number, (start_us, end_us) in enumerate(pairwise(borders_us))
    )
    return ToldSteps(tuple(steps), by)


def _by_optimizer(trace: Trace) -> ToldSteps:
    """Tell steps by the ends of the optimizer that steps last in them."""
    labels = [op for op in trace.ops if op.name.startswith(_OPTIMIZER)]
    if not labels:
        return ToldSteps((), "")
    (thread, name), _ = Counter((op.thread, op.name) for op in labels).most_common(1)[0]
    own = [op for op in labels if op.thread == thread and op.name == name]
    ends_us = [op.end_us for op in _outermost(own)]
    return _steps(thread, ends_us, f"the ends of {name}")


def _outermost(ops: Sequence[HostOp]) -> Iterator[HostOp]:
    """Yield ops that are in no other one: wrapped optimizers have two labels a step."""
    reached_us = -1.0
    for op in ops:
        if op.start_us >= reached_us:
            reached_us = op.end_us
            yield op


@attrs.frozen
class _Launch:
    """What the host did at one time: a launch, or a wait."""

    token: _Token
    at_us: float
    is_border: bool


def _launches(
    trace: Trace, thread: Thread, works: dict[int, DeviceWork]
) -> Iterator[_Launch]:
    for call in trace.calls:
        if call.thread != thread:
            continue
        work = works.get(call.correlation)
        if work is not None:
            token = work.name, work.shape, work.size_bytes
            yield _Launch(token, call.start_us, work.name.startswith(_TO_DEVICE))
        elif waits_for(call.name) is Waits.DEVICE and "Free" not in call.name:
            yield _Launch((call.name,), call.end_us, is_border=True)


def _alike(done: Sequence[_Launch], places: Sequence[int], apart: int) -> Sequence[int]:
    """Return borders, every *apart*-th of the last places, if all between is alike.

    A first stretch may be unlike the others: libraries warm up. Before the first border
    and after the last one there is room for less than a step.
    """
    begins = places[::-1][::apart][::-1]
    stretches = [
        tuple(one.token for one in done[first:last]) for first, last in pairwise(begins)
    ]
    if len(stretches) > _FEWEST and stretches[0] != stretches[1]:
        begins, stretches = begins[1:], stretches[1:]
    length = len(stretches[0]) if stretches else 0
    alike = len(stretches) >= _FEWEST and len({*stretches}) == 1 and length > 1
    is_all = len(done) - begins[-1] <= length
    return begins if alike and is_all else ()
