"""Whether a trace is of the program that a report predicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs

from perfc.costmodels import load_target
from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import Level
from perfc.tools.diffs.matching import sized
from perfc.tools.diffs.op_names import plain_op
from perfc.tools.diffs.side import Segment, Side, SideNode
from perfc.tools.reports import format_percent

_ANOTHER = 0.01
"""Share of the device's time in ops of both sides below which programs are two."""

_BETWEEN = "T1"
_DOUBTFUL = 0.5
"""Share below which the user is told."""


def as_traced(side: Side) -> Sequence[SideNode]:
    """Return the ops of a side as a trace shows them.

    Of an op that the host spends no time in, a trace has nothing. What lies between it
    and the op before is seen as what lies between that one and the next.
    """
    if side.is_measured:
        return side.nodes
    found: list[SideNode] = []
    unseen: list[Segment] = []
    for node in side.nodes:
        between = [s for s in node.segments if s.detail == _BETWEEN]
        between_us = math.fsum(s.us for s in between)
        if between and not node.kernels and node.duration_us <= between_us:
            unseen += between
            continue
        if not (node.kernels or node.segments or node.duration_us):
            continue
        seen = node.segments
        if unseen and seen:
            seen, unseen = [*unseen, *seen], []
        found.append(attrs.evolve(node, segments=seen))
    if unseen and found:
        found[-1] = attrs.evolve(found[-1], segments=unseen)
    return found


def same_program(base: Side, head: Side) -> Iterator[Diagnostic]:
    """Yield remarks on how much of the two sides is alike.

    Ops are alike by their shapes, too, where a trace has recorded them.

    Raises:
        PerfcError: next to nothing is.

    """
    trace, other = (head, base) if head.is_measured else (base, head)
    by_shapes = any(map(sized, trace.nodes)) and any(map(sized, other.nodes))
    share = min(
        _alike(trace.nodes, other.nodes, by_shapes=by_shapes),
        _alike(other.nodes, trace.nodes, by_shapes=by_shapes),
    )
    if share < _ANOTHER:
        key = 'args["Input Dims"]' if by_shapes else "name"
        what = "ops and shapes" if by_shapes else "ops"
        msg = (
            f"{trace.where}: traceEvents[].{key}: {format_percent(share)} of the "
            f"device's time is in {what} that {other.where} has; expected a trace of "
            "the same program, mode and batch"
        )
        raise PerfcError(msg)
    if share < _DOUBTFUL:
        message = (
            f"only {format_percent(share)} of the device's time is in ops and shapes "
            f"that {other.where} has: it may be of another program, mode or batch"
        )
        yield Diagnostic(Level.WARNING, "trace-unlike", message, trace.where)
    if trace.target and _device(trace) != _device(other):
        message = f"measured on {trace.target}, compared with {other.target}"
        yield Diagnostic(Level.WARNING, "trace-target", message, trace.where)


def _device(side: Side) -> str:
    """Return the device of a side: that of a system's nodes, if its target is one."""
    try:
        return load_target(side.target).device.name
    except PerfcError:  # a target of the user's own, which the report names alone
        return side.target


def _alike(
    nodes: Sequence[SideNode], others: Sequence[SideNode], *, by_shapes: bool
) -> float:
    """Return the share of the device's time in ops that the others have, too."""
    names = {plain_op(node.op) for node in others if not (by_shapes and sized(node))}
    kinds = {kind for node in others if node.is_bare for kind in node.kernel_ops}
    others_kinds = {kind for node in others for kind in node.kernel_ops}
    known = {(plain_op(node.op), sized(node)) for node in others}

    def is_alike(node: SideNode) -> bool:
        if node.is_bare:
            return not others_kinds.isdisjoint(node.kernel_ops)
        name, shapes = plain_op(node.op), sized(node)
        is_known = (name, shapes) in known if by_shapes and shapes else name in names
        return is_known or not kinds.isdisjoint(node.kernel_ops)

    launching = [node for node in nodes if node.kernels]
    whole_us = math.fsum(node.duration_us for node in launching)
    alike_us = math.fsum(node.duration_us for node in launching if is_alike(node))
    return alike_us / whole_us if whole_us else 0.0
