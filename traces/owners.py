"""Owners of launches: the innermost op around a call, on its thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perfc.traces.events import HostOp, RuntimeCall, Thread


def op_parents(ops: Sequence[HostOp]) -> dict[int, HostOp | None]:
    """Return the op around each op on its thread, by the identity of the op.

    Args:
        ops: Ops in the order of their starts, longer ones first.

    """
    around: dict[int, HostOp | None] = {}
    open_ops: dict[Thread, list[HostOp]] = {}
    for op in ops:
        stack = open_ops.setdefault(op.thread, [])
        while stack and stack[-1].end_us <= op.start_us:
            stack.pop()
        around[id(op)] = stack[-1] if stack else None
        stack.append(op)
    return around


def call_owners(
    calls: Iterable[RuntimeCall],
    ops: Sequence[HostOp],
    parents: Mapping[int, HostOp | None] | None = None,
) -> Iterator[tuple[RuntimeCall, HostOp | None]]:
    """Yield each call with the innermost op around it, None where there is none.

    Args:
        calls: Calls in the order of their starts.
        ops: Ops in the order of their starts, longer ones first; no labels.
        parents: What `op_parents` says of them, where it is known already.

    """
    around = op_parents(ops) if parents is None else parents
    latest: dict[Thread, HostOp] = {}
    position = 0
    for call in calls:
        while position < len(ops) and ops[position].start_us <= call.start_us:
            latest[ops[position].thread] = ops[position]
            position += 1
        op = latest.get(call.thread)
        while op is not None and op.end_us < call.start_us:
            op = around[id(op)]
        yield call, op
