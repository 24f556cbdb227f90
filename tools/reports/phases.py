"""The `phases` of a report: what forward, loss, backward and optimizer take."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS, HOST_KINDS
from perfc.ir.support import US, Json
from perfc.passes import MemoryUse, task_mask
from perfc.passes.timing import device_mask
from perfc.tools.reports.results import Results

PHASES = ("forward", "loss", "backward", "optimizer")
"""The phases of a step, in their order; gradients may be zeroed before forward."""

_WORKING = HOST_KINDS - {TaskKind.SYNC}


def node_phases(results: Results) -> dict[str, str]:
    """Return the phase of each node of the op graphs, by its name."""
    return {
        node.name: node.location.phase
        for rank in results.program.classes
        if rank.ops is not None
        for node in rank.ops
    }


def phase_entries(
    results: Results, use: MemoryUse, phases: Mapping[str, str]
) -> list[Json]:
    """Return the entry of each phase: forward, loss, backward, optimizer, others.

    `time_us` is along the critical path and sums to that of the iteration; busy times
    and launches are of the critical rank class. What belongs to no node is in the phase
    "".
    """
    found = dict.fromkeys([*phases.values(), ""])
    names = [*(p for p in PHASES if p in found), *(p for p in found if p not in PHASES)]
    numbers = {name: number for number, name in enumerate(names)}
    of_task = _phase_of_tasks(results, phases, numbers)
    table, number = results.path.segment_table, results.critical
    graph, count = results.hosted[number].graph, len(names)
    durations_s = results.class_tasks(results.schedule.durations_s, number)
    busy = np.array(task_mask(graph, BUSY_KINDS)) & device_mask(graph)
    working = np.array(task_mask(graph, _WORKING))
    first = of_task[results.schedule.offsets[number] :][: len(graph)]
    columns = {
        "time_us": np.bincount(of_task[table.task], table.duration_s * US, count),
        "device_us": np.bincount(first[busy], durations_s[busy] * US, count),
        "host_us": np.bincount(first[working], durations_s[working] * US, count),
        "launches": np.bincount(first[busy], minlength=count),
    }
    # The most that is allocated during each phase.
    peaks: dict[str, int] = {}
    for name, nbytes in zip(use.nodes, use.during_bytes, strict=True):
        phase = phases.get(name, "")
        peaks[phase] = max(peaks.get(phase, 0), nbytes)
    rows = zip(names, *(column.tolist() for column in columns.values()), strict=True)
    entries = [
        {
            "phase": name,
            **dict(zip(columns, row, strict=True)),
            "peak_memory_bytes": peaks.get(name, 0),
        }
        for name, *row in rows
    ]
    return [entry for entry in entries if entry["phase"] or entry["time_us"]]


def _phase_of_tasks(
    results: Results, phases: Mapping[str, str], numbers: Mapping[str, int]
) -> NDArray[np.int64]:
    """Return the number of the phase of every task, by its flat number."""
    found: list[NDArray[np.int64]] = []
    for hosted in results.hosted:
        graph = hosted.graph
        # The last one, which -1 finds, is for tasks that belong to no op.
        ops = [*(numbers[phases.get(op.node, "")] for op in graph.ops), numbers[""]]
        found.append(np.array(ops)[np.array(graph.op, dtype=np.int64)])
    return np.concatenate(found)
