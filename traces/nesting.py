"""Ops around calls of the runtime, also where the clocks of both disagree.

Ops and calls are recorded by different means. In some traces the clock of the calls is
off by up to some 30 us, now and then: calls begin in one op and end in another, which
no call does. Nothing is moved; a call that lies across the border of an op is taken to
be inside, and a wait that lies beside the op that it belongs to is given back to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from perfc.costmodels.constants import constants
from perfc.traces.events import HostOp, RuntimeCall, Thread, Trace
from perfc.traces.runtime import is_stream_wait

CLOCKS_US = constants("traces").number("clocks_us")
"""Microseconds by which clocks of a host and of its devices, or of ops and of calls,
disagree at most."""

BOOKKEEPING = ("record_param_comms", "c10d_functional::wait_tensor")
"""Ops that keep a collective's books: they launch it, or wait for it."""


def innermost(trace: Trace) -> dict[int, HostOp]:
    """Return the innermost op around each call, labels left out, by the call's id."""
    ops: dict[Thread, list[HostOp]] = defaultdict(list)
    for op in trace.ops:
        if not op.is_label:
            ops[op.thread].append(op)
    calls: dict[Thread, list[RuntimeCall]] = defaultdict(list)
    for call in trace.calls:
        calls[call.thread].append(call)
    found: dict[int, HostOp] = {}
    for thread, own in calls.items():
        inside = dict(_inside(own, ops[thread]))
        found |= inside
        if any(_lies_across(call, inside.get(id(call))) for call in own):
            found |= _given_back(own, ops[thread], inside)
    return found


def _lies_across(call: RuntimeCall, op: HostOp | None) -> bool:
    return op is not None and not op.start_us <= call.start_us <= call.end_us <= (
        op.end_us
    )


def _inside(
    calls: Iterable[RuntimeCall], ops: Sequence[HostOp]
) -> Iterator[tuple[int, HostOp]]:
    """Yield the calls of a thread that are in an op, and the innermost one."""
    stack: list[HostOp] = []
    at = 0
    for call in calls:
        while at < len(ops) and _begins_before(ops[at], call):
            while stack and stack[-1].end_us <= ops[at].start_us:
                stack.pop()
            stack.append(ops[at])
            at += 1
        while (
            stack
            and stack[-1].end_us < call.end_us
            and (stack[-1].end_us <= call.start_us)
        ):
            stack.pop()
        # A call within a call may have met ops that begin after it.
        around = (op for op in reversed(stack) if _begins_before(op, call))
        op = next(around, None)
        if op is not None:
            yield id(call), op


def _begins_before(op: HostOp, call: RuntimeCall) -> bool:
    """Whether an op begins before a call ends; in time with it is before, too."""
    return op.start_us <= call.start_us or op.start_us < call.end_us


def _given_back(
    calls: Iterable[RuntimeCall],
    ops: Iterable[HostOp],
    inside: dict[int, HostOp],
) -> dict[int, HostOp]:
    """Return waits beside an op that keeps a collective's books and has none.

    Every such op lets its stream wait at least once.
    """
    waits = [call for call in calls if is_stream_wait(call.name)]
    kept = [(id(w) in inside and inside[id(w)].name in BOOKKEEPING) for w in waits]
    starts = [wait.start_us for wait in waits]
    found: dict[int, HostOp] = {}
    reached_us = 0.0
    for op in ops:
        if op.name not in BOOKKEEPING or op.start_us < reached_us:
            continue
        reached_us = op.end_us
        first, last = bisect_left(starts, op.start_us), bisect_right(starts, op.end_us)
        across = any(inside.get(id(wait)) is op for wait in waits[first - 1 : first])
        if first < last or across:
            continue
        beside = [n for n in (first - 1, last) if 0 <= n < len(waits) and not kept[n]]
        nearest = min(beside, key=lambda n: _apart_us(waits[n], op), default=None)
        if nearest is not None and _apart_us(waits[nearest], op) <= CLOCKS_US:
            kept[nearest] = True
            found[id(waits[nearest])] = op
    return found


def _apart_us(call: RuntimeCall, op: HostOp) -> float:
    return max(op.start_us - call.end_us, call.start_us - op.end_us)
