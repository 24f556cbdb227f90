"""Collectives of one trace that are one: ranks of one process, or of one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from perfc.traces.events import DeviceWork


def tied_devices(works: Mapping[int, DeviceWork]) -> Iterator[tuple[int, ...]]:
    """Yield the tasks, on several devices, that are one collective.

    A profiler writes what one process does, which is mostly one rank; perfc writes all
    ranks that differ into one file. What was started together on one device has one
    name, and is told apart by its order.
    """
    groups: dict[tuple[str, int], list[int]] = {}
    met: Counter[tuple[str, int]] = Counter()
    for task in sorted(works):
        work = works[task]
        if not work.identity:
            continue
        place = work.identity, work.stream[0]
        groups.setdefault((work.identity, met[place]), []).append(task)
        met[place] += 1
    return (tuple(tasks) for tasks in groups.values() if len(tasks) > 1)
