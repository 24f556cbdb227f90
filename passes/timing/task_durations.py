"""How long every task takes, and where that number comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Estimate
from perfc.ir import LaunchGraph
from perfc.ir.launch import BUSY_KINDS, HOST_KINDS
from perfc.passes.columns import floats
from perfc.passes.facts import HostedLaunches
from perfc.passes.timing.task_kinds import kernel_numbers, task_mask
from perfc.passes.timing.timeline import ScheduleError


@attrs.frozen(eq=False)
class Sources:
    """Sources of the durations of one launch graph's tasks.

    Attributes:
        stated_s: Seconds the source states, NaN where none.
        host: Host tasks without a stated duration.
        device: Kernels, copies and collectives without one.
        kernel: Kernel index of each of `device`, -1 for none.

    """

    stated_s: NDArray[np.float64]
    host: NDArray[np.intp]
    device: NDArray[np.intp]
    kernel: NDArray[np.intp]


_SOURCES: WeakKeyDictionary[LaunchGraph, Sources] = WeakKeyDictionary()
"""Sources by structure: kernels do not matter, and a complete graph does not change."""


def sources(graph: LaunchGraph) -> Sources:
    """Return which tasks of *graph* get their duration from where."""
    if not graph.complete:
        return _sources(graph)
    found = _SOURCES.get(graph.structure)
    if found is None:
        found = _SOURCES[graph.structure] = _sources(graph)
    return found


def _sources(graph: LaunchGraph) -> Sources:
    stated_s = floats(graph.stated_s)
    open_ = np.isnan(stated_s)
    device = np.flatnonzero(open_ & task_mask(graph, BUSY_KINDS))
    return Sources(
        stated_s,
        np.flatnonzero(open_ & task_mask(graph, HOST_KINDS)),
        device,
        kernel_numbers(graph)[device],
    )


def task_durations(
    hosted: Sequence[HostedLaunches], costs: Sequence[Estimate]
) -> list[float]:
    """Return the seconds of every task, in flat order.

    That is what the source states, else the host time or the kernel's estimate;
    records and waits take no time.

    Args:
        hosted: Launch graph and host times of each rank class.
        costs: Estimate of each class's kernels.

    """
    seconds: list[float] = []
    for launches, cost in zip(hosted, costs, strict=True):
        seconds += _durations(launches, cost).tolist()
    return seconds


def _durations(launches: HostedLaunches, cost: Estimate) -> NDArray[np.float64]:
    found = sources(launches.graph)
    seconds = np.where(np.isnan(found.stated_s), 0.0, found.stated_s)
    seconds[found.host] = launches.host_s[found.host]
    # Index -1 is the NaN at the end: no kernel, no duration.
    seconds[found.device] = np.append(cost.seconds, np.nan)[found.kernel]
    impossible = ~((seconds >= 0) & (seconds < np.inf))
    if impossible.any():
        task = int(impossible.argmax())
        raise ScheduleError(_no_duration(launches.graph, task, float(seconds[task])))
    return seconds


def _no_duration(graph: LaunchGraph, task: int, seconds: float) -> str:
    kind = graph.kind[task]
    if not math.isnan(seconds):
        found = f"a duration of {seconds} s; expected a finite one that is not negative"
    elif kind in HOST_KINDS:
        found = "no duration; state one or let a host pass give it one"
    else:
        found = "no duration; state one or give it a kernel that a cost model prices"
    op = graph.op[task]
    words = [
        f"task {task}",
        f"({' '.join(filter(None, (kind.value, graph.detail[task])))}",
        f"of {graph.ops[op].name})" if op >= 0 else "of no op)",
    ]
    return f"{' '.join(words)} of {graph} has {found}"
