"""The slices of a trace that lie on streams: kernels, copies and collectives."""

from __future__ import annotations

import json
import math
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from perfc.exporters.kineto.collective import meeting, sent
from perfc.exporters.kineto.events import (
    arrow_end,
    arrows,
    events,
    microseconds,
    slice_start,
)
from perfc.exporters.kineto.rank import RankTrace
from perfc.ir import Kernel, Node, TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.passes import task_mask
from perfc.tools import Results
from perfc.traces.stated_kernels import SIGNATURE, signature_text

Key: TypeAlias = tuple[int, str, str, int, TaskKind, bool, str]
"""Kernel, op, detail, resource, kind, whether the time is not stated, and the name of
the meeting of a collective."""

_ON_PATH, _ASIDE = ',"critical":1', ',"critical":0'
_KINDS = {"h2d": "HtoD", "d2h": "DtoH", "d2d": "DtoD"}
_SIDES = {"h2d": "{host} -> Device", "d2h": "Device -> {host}"}
_COLLECTIVES = {
    "all_gather": "AllGather",
    "all_reduce": "AllReduce",
    "all_to_all": "SendRecv",
    "broadcast": "Broadcast",
    "reduce_scatter": "ReduceScatter",
    "send_recv": "SendRecv",
}
"""Ops by the names of NCCL's kernels; an all-to-all is sends and receives."""


def device_slices(rank: RankTrace, results: Results) -> list[str]:
    """Return kernels, copies and collectives, then the arrows that end there."""
    graph, shown = rank.graph, task_mask(rank.graph, BUSY_KINDS)
    busy, chosen = np.flatnonzero(shown), shown.tolist()
    tasks: list[int] = busy.tolist()
    ops: list[int] = rank.op[busy].tolist()
    keys = list(
        zip(
            compress(graph.kernel, chosen),
            map(rank.op_names.__getitem__, ops),
            compress(graph.detail, chosen),
            compress(graph.resource, chosen),
            compress(graph.kind, chosen),
            map(math.isnan, compress(graph.stated_s, chosen)),
            compress(graph.group, chosen),
            strict=True,
        )
    )
    first = dict(zip(reversed(keys), reversed(tasks), strict=True))
    parts = {key: _part(rank, results, key, task) for key, task in first.items()}
    equal = [parts[key] for key in keys]
    calls = rank.issue[busy]
    correlations = rank.correlations(np.where(calls < 0, busy, calls))
    times = microseconds(rank.start_ns[busy])
    on_path = np.isin(rank.offset + busy, results.path.task_numbers)
    slices = events(
        [part.head for part in equal],
        times,
        ',"dur":',
        microseconds(rank.end_ns[busy] - rank.start_ns[busy]),
        [rank.external_ids[op] for op in ops],
        '"correlation":',
        correlations,
        [_ON_PATH if critical else _ASIDE for critical in on_path.tolist()],
        [part.tail for part in equal],
    )
    issued = (calls >= 0).tolist()
    ends = ([part.arrow for part in equal], times, correlations)
    slices += arrows(*(list(compress(column, issued)) for column in ends))
    return slices


class _Part(NamedTuple):
    """What equal tasks share: beginning and end, and the beginning of the arrow."""

    head: str
    tail: str
    arrow: str


def _part(rank: RankTrace, results: Results, key: Key, task: int) -> _Part:
    number, op, detail, resource, kind, is_priced, group = key
    lane = rank.lanes[resource]
    kernel = rank.graph.kernels[number] if number >= 0 else None
    category = "gpu_memcpy" if kind is TaskKind.COPY else "kernel"
    price = results.price(rank.number, task)
    args: dict[str, Any] = {
        "device": lane.device,
        "context": 1,
        "stream": lane.tid,
        "cost model": price.model,
        "provenance": price.provenance.value,
    }
    if kernel is not None:
        args |= {"bytes": kernel.work.bytes, "flops": kernel.work.flops}
    if kernel is not None and kind is TaskKind.COPY:
        args |= _copied(kernel, int(rank.end_ns[task] - rank.start_ns[task]))
    if group:
        args |= meeting(group)
    if group and kernel is not None:
        args |= sent(kernel, _node(rank, results, task))
    head = slice_start(category, _name(kind, kernel, op, detail), lane)
    tail = f",{json.dumps(args)[1:-1]}"
    if kernel is not None and is_priced and kind is not TaskKind.COLLECTIVE:
        tail += f',"{SIGNATURE}":{signature_text(kernel)}'
    return _Part(head, f"{tail}}}}}", arrow_end("ac2g", lane))


def _node(rank: RankTrace, results: Results, task: int) -> Node | None:
    nodes, op = results.program.classes[rank.number].ops, rank.graph.op[task]
    if nodes is None or op < 0:
        return None
    name = rank.graph.ops[op].node
    return next((node for node in nodes if node.name == name), None)


def _copied(kernel: Kernel, duration_ns: int) -> dict[str, Any]:
    nbytes = kernel.params.get("bytes")
    moved = nbytes if isinstance(nbytes, int) else kernel.work.bytes_written
    rate = {"memory bandwidth (GB/s)": moved / duration_ns} if duration_ns else {}
    return {"bytes": moved, **rate}


def _name(kind: TaskKind, kernel: Kernel | None, op: str, detail: str) -> str:
    """Return a name that viewers and HolisticTraceAnalysis sort as Kineto's."""
    if kind is TaskKind.COPY:
        found = kernel.params.get("kind") if kernel is not None else None
        direction = found if isinstance(found, str) else detail
        pinned = kernel is None or kernel.params.get("pinned") is not False
        host = "Pinned" if pinned else "Pageable"
        sides = _SIDES.get(direction, "Device -> Device").format(host=host)
        return f"Memcpy {_KINDS.get(direction, direction)} ({sides})"
    what = f"{kernel.op} {kernel.math}" if kernel is not None else detail or kind.value
    if kind is TaskKind.COLLECTIVE:
        name = kernel.op if kernel is not None else detail
        return f"ncclDevKernel_{_COLLECTIVES.get(name, name or 'Generic')}"
    return f"{op} {what}".strip()
