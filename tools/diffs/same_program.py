"""Whether a trace is of the program that a report predicts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import attrs

from perfc.costmodels import load_target
from perfc.ir import Diagnostic, PerfcError
from perfc.ir.support import Level
from perfc.tools.diffs.matching import Pair, sized
from perfc.tools.diffs.op_names import plain_op
from perfc.tools.diffs.side import Segment, Side, SideNode
from perfc.tools.reports import format_percent

_ANOTHER_SHAPES = 0.01
"""Share of the device's time in ops and shapes of both below which programs are two."""

_ANOTHER_OPS = 0.1
"""Share of that time in ops that both have as many of, below which they are two.

Of reports of other families, eight public traces of six programs have at most 9 %; of
those that are made of the same layers (a perceptron beside a DLRM or a transformer, a
language model beside another), 11 % or more. Traces of ResNet-50's training have 19 %
of its inference, and 63 % or more of its training, eager or compiled.
"""

_COMMON = frozenset(
    {
        *("elementwise", "triton_poi", "foreach", "optimizer_step"),
        *("memcpy", "Memset", "send_recv", "all_reduce", "all_gather"),
        *("reduce_scatter", "all_to_all", "broadcast"),
    }
)
"""Kernels that programs of all kinds launch, which do not tell them apart."""

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


def same_program(base: Side, head: Side, pairs: Sequence[Pair]) -> Iterator[Diagnostic]:
    """Yield remarks on how much of the two sides is alike.

    Ops are alike by their shapes, too, where a trace has recorded them; and there have
    to be as many of them.

    Args:
        base: One side.
        head: The other.
        pairs: Their ops, as matched.

    """
    trace, other = (head, base) if head.is_measured else (base, head)
    told: list[tuple[float, float, str, str]] = []
    if any(map(sized, trace.nodes)) and any(map(sized, other.nodes)):
        share = min(_alike(trace.nodes, other.nodes), _alike(other.nodes, trace.nodes))
        told.append(
            (share, _ANOTHER_SHAPES, 'args["Input Dims"]', "ops and shapes that {} has")
        )
    told.append((_paired(pairs), _ANOTHER_OPS, "name", "ops that {} has as many of"))
    for share, least, key, what in told:
        if share < least:
            msg = (
                f"{trace.where}: traceEvents[].{key}: {format_percent(share)} of the "
                f"device's time is in {what.format(other.where)}; expected a trace of "
                "the same program, mode and batch"
            )
            raise PerfcError(msg)
    share, _, _, what = min(told)
    if share < _DOUBTFUL:
        message = (
            f"only {format_percent(share)} of the device's time is in "
            f"{what.format(other.where)}: it may be of another program, mode or batch"
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


def _alike(nodes: Sequence[SideNode], others: Sequence[SideNode]) -> float:
    """Return the share of the device's time in ops and shapes of the others, too."""
    names = {plain_op(node.op) for node in others if not sized(node)}
    kinds = {kind for node in others if node.is_bare for kind in node.kernel_ops}
    others_kinds = {kind for node in others for kind in node.kernel_ops}
    known = {(plain_op(node.op), sized(node)) for node in others}

    def is_alike(node: SideNode) -> bool:
        if node.is_bare:
            return not others_kinds.isdisjoint(node.kernel_ops)
        name, shapes = plain_op(node.op), sized(node)
        is_known = (name, shapes) in known if shapes else name in names
        return is_known or not kinds.isdisjoint(node.kernel_ops)

    launching = [node for node in nodes if node.kernels]
    whole_us = math.fsum(node.duration_us for node in launching)
    alike_us = math.fsum(node.duration_us for node in launching if is_alike(node))
    return alike_us / whole_us if whole_us else 0.0


def _paired(pairs: Sequence[Pair]) -> float:
    """Return the share of the device's time in ops with a partner, the lesser side's.

    Kernels that tell nothing are left out unless a side has no others.
    """
    for common in (_COMMON, frozenset[str]()):
        base = _share([(pair.base, pair.head) for pair in pairs], common)
        head = _share([(pair.head, pair.base) for pair in pairs], common)
        if base is not None and head is not None:
            return min(base, head)
    return 0.0


def _share(
    pairs: Sequence[tuple[SideNode | None, SideNode | None]], common: AbstractSet[str]
) -> float | None:
    """Return the share of the rank that has most; None if none has such kernels.

    A prediction may be of many ranks, a trace is of one.
    """
    whole_us, paired_us = defaultdict[int, float](float), defaultdict[int, float](float)
    for one, other in pairs:
        if one is None or common >= {*one.kernel_ops}:
            continue
        whole_us[one.rank] += one.duration_us
        if other is not None and other.kernels:
            paired_us[one.rank] += one.duration_us
    return max((paired_us[n] / us for n, us in whole_us.items() if us), default=None)
