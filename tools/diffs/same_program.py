"""Whether a trace is of the program that a report predicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import Level
from perfc.tools.diffs.matching import sized
from perfc.tools.diffs.op_names import plain_op
from perfc.tools.diffs.side import Side, SideNode
from perfc.tools.reports import format_percent

_ANOTHER = 0.05
"""Share of the device's time in ops of both sides below which programs are two."""

_DOUBTFUL = 0.7
"""Share below which the user is told."""


def same_program(base: Side, head: Side) -> Iterator[Diagnostic]:
    """Yield what there is to say of how much of the two sides is alike.

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
    if trace.target and other.target and trace.target != other.target:
        message = f"measured on {trace.target}, compared with {other.target}"
        yield Diagnostic(Level.WARNING, "trace-target", message, trace.where)


def _alike(
    nodes: Sequence[SideNode], others: Sequence[SideNode], *, by_shapes: bool
) -> float:
    """Return the share of the device's time in ops that the others have, too."""

    def key(node: SideNode) -> tuple[str, tuple[str, ...]]:
        return plain_op(node.op), sized(node) if by_shapes else ()

    known = {key(node) for node in others if sized(node) or not by_shapes}
    launching = [node for node in nodes if node.kernels]
    whole_us = math.fsum(node.duration_us for node in launching)
    alike_us = math.fsum(node.duration_us for node in launching if key(node) in known)
    return alike_us / whole_us if whole_us else 0.0
