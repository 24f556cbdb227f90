"""The `ranks` of a report: what each class of identical ranks does, and waits for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.support import US, Json
from perfc.passes import MemoryUse, task_mask
from perfc.passes.timing import arrival, device_mask
from perfc.tools.reports.results import Results
from perfc.tools.reports.stretches import Stretch, Stretches, disjoint, idle, total_s

_COMPUTE = BUSY_KINDS - {TaskKind.COLLECTIVE}
_COLLECTIVE = frozenset({TaskKind.COLLECTIVE})


def rank_entries(results: Results, uses: Sequence[MemoryUse]) -> list[Json]:
    """Return one entry per class of identical ranks, times in microseconds.

    Communication is exposed where the rank runs no kernel and no copy meanwhile. A
    rank waits from when it could start a collective to when the last rank can, as far
    as it has nothing else to run; it is late by as much as it alone makes another
    wait. Imbalance compares what a rank computes with the mean over all ranks.

    Args:
        results: What the passes left.
        uses: Memory of each class.

    """
    waiting_s, late_s = _meetings(results)
    computing_s = [busy_s(results, n, _COMPUTE) for n in range(len(results.hosted))]
    counts = [len(rank.ranks) for rank in results.program.classes]
    mean_s = float(np.average(computing_s, weights=counts))
    entries: list[Json] = []
    for number, rank in enumerate(results.program.classes):
        own_s = results.class_tasks(results.schedule.ends_s, number)
        entries.append(
            {
                "ranks": list(rank.ranks),
                "critical": number == results.critical,
                "time_us": float(own_s.max(initial=0.0)) * US,
                "compute_us": computing_s[number] * US,
                "comm_us": comm_s(results, number) * US,
                "exposed_comm_us": exposed_s(results, number) * US,
                "waiting_us": waiting_s[number] * US,
                "late_us": late_s[number] * US,
                "imbalance": computing_s[number] / mean_s - 1 if mean_s else 0.0,
                "peak_memory_bytes": uses[number].peak_bytes,
            }
        )
    return entries


def busy_s(results: Results, number: int, kinds: frozenset[TaskKind]) -> float:
    """Seconds during which any task of some kinds of a rank class runs."""
    return total_s(_runs(results, number, kinds))


def _runs(results: Results, number: int, kinds: frozenset[TaskKind]) -> Stretches:
    graph = results.hosted[number].graph
    chosen = np.flatnonzero(task_mask(graph, kinds) & device_mask(graph))
    start_s = results.class_tasks(results.schedule.starts_s, number)[chosen]
    end_s = results.class_tasks(results.schedule.ends_s, number)[chosen]
    return np.stack([start_s, end_s], axis=1)


def comm_s(results: Results, number: int) -> float:
    """Seconds of the collectives of a rank class, without what it waits for others."""
    chosen = task_mask(results.hosted[number].graph, _COLLECTIVE)
    own_s = results.class_tasks(results.schedule.durations_s, number)
    return math.fsum(own_s[chosen].tolist())


def exposed_s(results: Results, number: int) -> float:
    """Seconds during which a rank class communicates and does nothing else."""
    if not task_mask(results.hosted[number].graph, _COLLECTIVE).any():
        return 0.0
    busy = busy_s(results, number, BUSY_KINDS) - busy_s(results, number, _COMPUTE)
    return max(0.0, busy)


def bubble_s(results: Results) -> float:
    """Return how long a rank waits for others and does nothing else, on average."""
    counts = [len(rank.ranks) for rank in results.program.classes]
    return float(np.average(_meetings(results)[0], weights=counts))


def _meetings(results: Results) -> tuple[list[float], list[float]]:
    """Return how long each class idly waits for others, and others for it alone."""
    count = len(results.hosted)
    busy = [disjoint(_runs(results, number, BUSY_KINDS)) for number in range(count)]
    waiting: list[list[Stretch]] = [[] for _ in range(count)]
    late: list[list[Stretch]] = [[] for _ in range(count)]
    ends_s = [*results.schedule.end_s, 0.0]
    for _, members in results.timeline.stages:
        if not members:
            continue
        came = sorted(
            (arrival(results.timeline, ends_s, task)[0], results.place(task)[0])
            for task in members
        )
        last_s, latest = came[-1]
        for time_s, number in came[:-1]:
            waiting[number] += idle((time_s, last_s), busy[number])
        time_s, number = came[-2]
        late[latest] += idle((time_s, last_s), busy[number])
    return _totals_s(waiting), _totals_s(late)


def _totals_s(stretches: Sequence[Sequence[Stretch]]) -> list[float]:
    """Return how long each list's last; what overlaps counts once."""
    return [total_s(np.array(own).reshape(-1, 2)) for own in stretches]
