"""What kernels and collectives of a launch graph take of their device."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs
import numpy as np

from perfc.costmodels import COLLECTIVES, Estimate, KernelTable, Target, collectives
from perfc.ir import LaunchGraph, TaskKind
from perfc.passes.timing.sharing import Demand
from perfc.passes.timing.timeline import Timeline


def demands_of(
    timeline: Timeline,
    costs: Sequence[Estimate],
    target: Target,
    high_priority: Collection[str] = (),
) -> dict[int, Demand]:
    """Return the demands of the kernels and collectives of all rank classes, by task.

    A kernel wants all SMs, and of the memory what its bytes take in its time.

    Args:
        timeline: Of the rank classes.
        costs: Estimate of each class's kernels.
        target: What they run on.
        high_priority: Names of the streams that go first.

    """
    found: dict[int, Demand] = {}
    for graph, first, cost in zip(
        timeline.graphs, timeline.offsets, costs, strict=True
    ):
        by_kernel = _by_kernel(graph, cost, target)
        urgent = [attrs.evolve(demand, urgent=True) for demand in by_kernel]
        for task, kind in enumerate(graph.kind):
            number = graph.kernel[task]
            if number >= 0 and kind in {TaskKind.KERNEL, TaskKind.COLLECTIVE}:
                stream = graph.resources[graph.resource[task]].name
                demands = urgent if stream in high_priority else by_kernel
                found[first + task] = demands[number]
    return found


def _by_kernel(graph: LaunchGraph, cost: Estimate, target: Target) -> list[Demand]:
    table = KernelTable(graph.kernels)
    limit_bytes = cost.seconds * target.device.memory.bytes_per_s
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(np.nan_to_num(table.bytes / limit_bytes), 0.0, 1.0)
    memory: list[float] = share.tolist()
    found = [Demand(computes=1.0, memory=own) for own in memory]
    sent = [n for n, k in enumerate(graph.kernels) if k.op in COLLECTIVES]
    if not sent:
        return found
    chosen = KernelTable([graph.kernels[number] for number in sent])
    shares = collectives.collective_shares(chosen, cost.seconds[sent], target)
    for at, number in enumerate(sent):
        found[number] = Demand(
            held=float(shares.held[at]),
            memory=float(shares.memory[at]),
            link=float(shares.link[at]),
            network=float(shares.network[at]),
            beside=collectives.SUMS_BESIDE if shares.sums[at] else 1.0,
        )
    return found
