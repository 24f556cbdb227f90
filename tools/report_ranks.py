"""The `ranks` of a report: what each class of identical ranks does, and waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfc.ir import BUSY_KINDS, TaskKind
from perfc.passes import MemoryUse, arrival, task_mask
from perfc.tools.results import Results

Json: TypeAlias = dict[str, Any]
Stretch: TypeAlias = tuple[float, float]
"""From when to when, in seconds."""

US = 1e6
_COMPUTE = BUSY_KINDS - {TaskKind.COLLECTIVE}
_COLLECTIVE = frozenset({TaskKind.COLLECTIVE})


def rank_entries(results: Results, uses: Sequence[MemoryUse]) -> list[Json]:
    """Return one entry per class of identical ranks, times in microseconds.

    Communication is exposed where the rank runs no kernel and no copy meanwhile. A
    rank waits from when it could start a collective to when the last rank can; it is
    late by as much as it holds up all others alone. Imbalance compares what a rank
    computes with the mean over all ranks.

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
    chosen = np.flatnonzero(task_mask(results.hosted[number].graph, kinds))
    return _covered_s(
        results.class_tasks(results.schedule.starts_s, number)[chosen],
        results.class_tasks(results.schedule.ends_s, number)[chosen],
    )


def _covered_s(start_s: NDArray[np.float64], end_s: NDArray[np.float64]) -> float:
    """Return how long any of some stretches of time lasts."""
    order = np.lexsort((end_s, start_s))
    start_s, end_s = start_s[order], end_s[order]
    reached_s = np.maximum.accumulate(np.concatenate([[0.0], end_s]))[:-1]
    alone_s = np.maximum(0.0, end_s - np.maximum(start_s, reached_s))
    return sum(alone_s.tolist(), start=0.0)


def comm_s(results: Results, number: int) -> float:
    """Seconds of the collectives of a rank class, without what it waits for others."""
    chosen = task_mask(results.hosted[number].graph, _COLLECTIVE)
    own_s = results.class_tasks(results.schedule.durations_s, number)
    return sum(own_s[chosen].tolist(), start=0.0)


def exposed_s(results: Results, number: int) -> float:
    """Seconds during which a rank class communicates and does nothing else."""
    if not task_mask(results.hosted[number].graph, _COLLECTIVE).any():
        return 0.0
    busy = busy_s(results, number, BUSY_KINDS) - busy_s(results, number, _COMPUTE)
    return max(0.0, busy)


def bubble_s(results: Results) -> float:
    """Return how long a rank waits for others and does nothing else, on average."""
    waiting, _ = _stretches(results)
    idle_s: list[float] = []
    for number, stretches in enumerate(waiting):
        busy = task_mask(results.hosted[number].graph, BUSY_KINDS)
        start_s = results.class_tasks(results.schedule.starts_s, number)[busy]
        end_s = results.class_tasks(results.schedule.ends_s, number)[busy]
        both = np.concatenate([np.stack([start_s, end_s], axis=1), _columns(stretches)])
        whole_s = _covered_s(both[:, 0], both[:, 1])
        idle_s.append(whole_s - _covered_s(start_s, end_s))
    counts = [len(rank.ranks) for rank in results.program.classes]
    return max(0.0, float(np.average(idle_s, weights=counts)))


def _meetings(results: Results) -> tuple[list[float], list[float]]:
    """Return how long each class waits for others, and they for it alone."""
    waiting, late = _stretches(results)
    return [_total_s(own) for own in waiting], [_total_s(own) for own in late]


def _stretches(results: Results) -> tuple[list[list[Stretch]], list[list[Stretch]]]:
    """Return when each class waits for others, and they for it alone."""
    waiting: list[list[Stretch]] = [[] for _ in results.hosted]
    late: list[list[Stretch]] = [[] for _ in results.hosted]
    ends_s = [*results.schedule.end_s, 0.0]
    for _, members in results.timeline.stages:
        if not members:
            continue
        times_s = [arrival(results.timeline, ends_s, task)[0] for task in members]
        last_s = max(times_s)
        for task, time_s in zip(members, times_s, strict=True):
            waiting[results.place(task)[0]].append((time_s, last_s))
        latest = results.place(members[times_s.index(last_s)])[0]
        late[latest].append((sorted(times_s)[-2], last_s))
    return waiting, late


def _total_s(stretches: Sequence[Stretch]) -> float:
    """Return how long they last; what several streams wait at once counts once."""
    columns = _columns(stretches)
    return _covered_s(columns[:, 0], columns[:, 1])


def _columns(stretches: Sequence[Stretch]) -> NDArray[np.float64]:
    return np.array(stretches, dtype=np.float64).reshape(-1, 2)
