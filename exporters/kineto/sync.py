"""The slices of a trace that say which stream waits for which event.

Kineto writes them where CUPTI tells of synchronisation (`enable_cuda_sync_events`): a
`Stream Wait Event` has the correlation of its `cudaStreamWaitEvent`, and that of the
`cudaEventRecord` it waits for.
"""

from __future__ import annotations

import json

import numpy as np

from perfc.exporters.kineto.events import events, microseconds, slice_start
from perfc.exporters.kineto.rank import RankTrace
from perfc.ir import TaskKind
from perfc.passes import task_mask

_WAIT = "Stream Wait Event"
_WAITS = frozenset({TaskKind.WAIT})


def sync_slices(rank: RankTrace) -> list[str]:
    """Return the slices of streams' waits, as far as calls of the host say so.

    A slice lies where the wait is over, which takes no time; waits within a CUDA graph
    are no calls.
    """
    waits = np.flatnonzero(task_mask(rank.graph, _WAITS))
    tasks = [task for task in waits.tolist() if _is_call(rank, task)]
    own = np.array(tasks, dtype=np.int64)
    resources: list[int] = rank.resource[own].tolist()
    lanes = [rank.lanes[number] for number in resources]
    ops: list[int] = rank.op[own].tolist()
    return events(
        [slice_start("cuda_sync", _WAIT, lane) for lane in lanes],
        microseconds(rank.start_ns[own]),
        ',"dur":0',
        [rank.external_ids[op] for op in ops],
        [_arguments(rank, task) for task in tasks],
        "}",
    )


def _is_call(rank: RankTrace, task: int) -> bool:
    graph = rank.graph
    call = graph.issue[task]
    is_call = call >= 0 and graph.detail[call] == "cudaStreamWaitEvent"
    return is_call and len(graph.after[task]) == 1


def _arguments(rank: RankTrace, task: int) -> str:
    """Return the arguments of a wait, without the brace in front of them."""
    graph = rank.graph
    (event,) = graph.after[task]
    lane, awaited = (rank.lanes[graph.resource[one]] for one in (task, event))
    recorded = graph.kind[event] is TaskKind.RECORD and graph.issue[event] >= 0
    wait, record = rank.numbers(np.array([graph.issue[task], graph.issue[event]]))
    args = {
        "cuda_sync_kind": _WAIT,
        "wait_on_stream": awaited.tid,
        "wait_on_cuda_event_record_corr_id": record if recorded else -1,
        "wait_on_cuda_event_id": event,
        "stream": lane.tid,
        "correlation": wait,
        "device": lane.device,
        "context": 1,
    }
    return json.dumps(args)[1:]
