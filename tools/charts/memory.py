"""Device memory along the step, and what it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir.launch import HOST_KINDS
from perfc.ir.support import US
from perfc.passes import MemoryUse, task_mask
from perfc.passes.columns import integers
from perfc.passes.lowering import fused_nodes
from perfc.passes.memory import BufferKind
from perfc.passes.timing import detail_mask
from perfc.tools.reports import Report, Results

MEMORY_CLASSES: Mapping[str, frozenset[BufferKind]] = {
    "parameters": frozenset({BufferKind.PARAMETER, BufferKind.CONSTANT}),
    "optimizer": frozenset({BufferKind.OPTIMIZER}),
    "gradients": frozenset({BufferKind.GRADIENT}),
    "activations": frozenset(
        {BufferKind.INPUT, BufferKind.ACTIVATION, BufferKind.SCRATCH}
    ),
    "library": frozenset({BufferKind.LIBRARY}),
}
"""What memory is for, as the keys `…_bytes` of a report's `memory` tell it apart."""

_BETWEEN_OPS = frozenset({"T1"})
"""The host time that belongs to an op, but is not in it."""


@attrs.frozen(eq=False)
class MemoryOverTime:
    """What one rank holds of its device's memory: a curve that steps at each point.

    Attributes:
        start_us: When each point begins, in order; the last holds to the step's end.
        bytes_of: Bytes of each of `MEMORY_CLASSES` from that point on.
        allocated_bytes: Their sum.
        at_node: The node at the peak, "" if that is before any node.

    """

    start_us: Sequence[float]
    bytes_of: Mapping[str, Sequence[int]]
    allocated_bytes: Sequence[int]
    at_node: str

    @property
    def peak(self) -> int:
        """The number of the first point at which most is allocated."""
        return self.allocated_bytes.index(max(self.allocated_bytes))


def memory_timeline(report: Report) -> MemoryOverTime:
    """Return the memory of the rank that needs most, whose peak is the report's."""
    number = report.memory_uses.index(report.memory_use)
    return memory_over_time(report.results, number, report.memory_use)


def memory_over_time(results: Results, number: int, use: MemoryUse) -> MemoryOverTime:
    """Return the memory of a rank class.

    Eager PyTorch allocates when the host begins an op; what the op frees when it ends
    shows where the next one begins. A node whose op costs the host nothing makes no
    step of its own: what it needs is added to the node before it. In a CUDA graph that
    is all of them: the memory of a graph stays allocated, so its curve is flat at the
    peak.

    Args:
        results: The facts.
        number: Of the rank class.
        use: Its memory.

    """
    held = np.stack([use.held(kinds) for kinds in MEMORY_CLASSES.values()])
    begin_s, end_s = _op_spans(results, number, use.nodes)
    places, start_s = _steps(held.sum(axis=0), begin_s)
    if len(places) > 1:  # the last moment is when the last op has ended
        places = [*places, held.shape[1] - 1]
        start_s = np.append(start_s, np.nanmax(end_s))
    shown: NDArray[np.int64] = held[:, places]
    changes = np.ones(len(places), dtype=np.bool_)
    changes[1:] = (np.diff(shown, axis=1) != 0).any(axis=0)
    shown = shown[:, changes]
    return MemoryOverTime(
        start_us=(start_s[changes] * US).tolist(),
        bytes_of=dict(zip(MEMORY_CLASSES, shown.tolist(), strict=True)),
        allocated_bytes=shown.sum(axis=0).tolist(),
        at_node=use.node,
    )


def _steps(
    allocated: NDArray[np.int64], begin_s: NDArray[np.float64]
) -> tuple[list[int], NDArray[np.float64]]:
    """Return which moments are shown, and when each begins, in seconds.

    Moments are before any node, and while each runs.
    """
    own: list[int] = np.flatnonzero(~np.isnan(begin_s)).tolist()
    if not own:
        return [int(allocated[:-1].argmax())], np.zeros(1)
    ends = [*own[1:], len(begin_s)]
    own[0] = 0  # what is before the first op that the host runs is added to it
    shown = [
        first + int(allocated[1 + first : 1 + end].argmax())
        for first, end in zip(own, ends, strict=True)
    ]
    start_s = np.maximum.accumulate(begin_s[~np.isnan(begin_s)])
    return [0, *(1 + place for place in shown)], np.insert(start_s, 0, 0.0)


def _op_spans(
    results: Results, number: int, nodes: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when the host begins and ends the op of each node; NaN without one."""
    graph = results.hosted[number].graph
    in_op = task_mask(graph, HOST_KINDS) & ~detail_mask(graph, _BETWEEN_OPS)
    in_op &= integers(graph.op) >= 0
    op = integers(graph.op)[in_op]
    start_s, end_s = np.full((2, len(graph.ops)), np.nan)
    starts_s, ends_s = results.schedule.starts_s, results.schedule.ends_s
    np.fmin.at(start_s, op, results.class_tasks(starts_s, number)[in_op])
    np.fmax.at(end_s, op, results.class_tasks(ends_s, number)[in_op])
    of_node: dict[str, int] = {}
    for place, launched in enumerate(graph.ops):
        of_node.update(dict.fromkeys((*fused_nodes(launched), launched.node), place))
    # The last one, which -1 finds, is for nodes without an op.
    numbers = [of_node.get(node, -1) for node in nodes]
    return np.append(start_s, np.nan)[numbers], np.append(end_s, np.nan)[numbers]
