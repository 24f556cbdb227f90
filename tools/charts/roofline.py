"""Kernels beside what the device could do: FLOP/s over FLOP a byte.

S. Williams, A. Waterman, D. Patterson: Roofline: an insightful visual performance model
for multicore architectures, CACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from perfc.ir import TaskKind
from perfc.ir.support import US
from perfc.passes import task_mask
from perfc.passes.columns import integers
from perfc.passes.timing import device_mask, kernel_numbers
from perfc.tools.reports import Report, Results


@attrs.frozen
class RooflinePoint:
    """The kernels of one node that compute or move bytes of the device's memory.

    Attributes:
        node: Its id, as in the report's `nodes`.
        op: What it is called.
        math: The math mode of the longest of them.
        flops: FLOP of all of them.
        bytes: Bytes that they have to move.
        time_us: How long they run.
        share: That over the time of all points.
        cost_model: What priced the longest.
        provenance: What kind of number that price is.

    """

    node: str
    op: str
    math: str
    flops: int
    bytes: int
    time_us: float
    share: float
    cost_model: str
    provenance: str

    @property
    def flop_per_byte(self) -> float | None:
        """Its arithmetic intensity; None if it moves no byte."""
        return self.flops / self.bytes if self.bytes else None

    @property
    def flop_per_s(self) -> float | None:
        """Its rate; None if it takes no time."""
        return self.flops / self.time_us * US if self.time_us else None


@attrs.frozen
class Roofline:
    """Points, and what bounds them on the target of the report.

    Attributes:
        points: One a node, those that take longest first.
        flop_per_s: The device's dense rate in each math mode that a point computes in.
        bytes_per_s: The rate of each of its memories, fastest first: the last cache,
            then device memory.

    """

    points: Sequence[RooflinePoint]
    flop_per_s: Mapping[str, float]
    bytes_per_s: Mapping[str, float]


def roofline_points(report: Report) -> Roofline:
    """Return the kernels of the rank class that decides the time.

    Copies, collectives and what another device does are left out: other roofs bound
    them.
    """
    device = report.target.device
    points = _points(report.results, report.results.critical)
    modes = dict.fromkeys(point.math for point in points)
    rates = {mode: device.peak(mode) for mode in modes}
    memories = {one.name: one.bytes_per_s for one in device.memories}
    return Roofline(points, rates, memories)


def _points(results: Results, number: int) -> Sequence[RooflinePoint]:
    graph = results.hosted[number].graph
    times_s = results.class_tasks(results.schedule.durations_s, number)
    # The tasks of each op whose kernels the device's own roofs bound.
    shown = task_mask(graph, frozenset({TaskKind.KERNEL})) & device_mask(graph)
    shown &= (integers(graph.op) >= 0) & (kernel_numbers(graph) >= 0)
    by_op: defaultdict[int, list[int]] = defaultdict(list)
    for task in np.flatnonzero(shown).tolist():
        if graph.kernels[graph.kernel[task]].math:
            by_op[graph.op[task]].append(task)
    total_s = math.fsum(float(times_s[task]) for own in by_op.values() for task in own)
    points: list[RooflinePoint] = []
    for op, tasks in by_op.items():
        kernels = [graph.kernels[graph.kernel[task]] for task in tasks]
        time_s = math.fsum(times_s[tasks].tolist())
        longest = max(tasks, key=times_s.__getitem__)
        price = results.price(number, longest)
        points.append(
            RooflinePoint(
                node=results.node_id(number, op),
                op=graph.ops[op].name,
                math=graph.kernels[graph.kernel[longest]].math,
                flops=sum(kernel.work.flops for kernel in kernels),
                bytes=sum(kernel.work.bytes for kernel in kernels),
                time_us=time_s * US,
                share=time_s / total_s if total_s else 0.0,
                cost_model=price.model,
                provenance=price.provenance.value,
            )
        )
    return sorted(points, key=lambda point: -point.time_us)
