"""The slices of a trace that lie on streams: kernels, copies and collectives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import compress
from typing import Any, TypeAlias

import numpy as np

from perfc.exporters.trace_events import arrow_end, microseconds, slice_start
from perfc.exporters.trace_rank import RankTrace
from perfc.ir import BUSY_KINDS, Kernel, TaskKind
from perfc.passes import task_mask
from perfc.tools import Results

Key: TypeAlias = tuple[int, str, str, int, TaskKind, bool]
"""Kernel, op, detail, resource, kind, and whether the time is stated."""

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


def device_slices(rank: RankTrace, results: Results) -> Iterator[str]:
    """Return kernels, copies and collectives, each with the arrow that ends there."""
    graph, shown = rank.graph, task_mask(rank.graph, BUSY_KINDS)
    tasks, names = np.flatnonzero(shown), [*(op.name for op in graph.ops), ""]
    ops = list(compress(graph.op, shown))
    keys = zip(
        compress(graph.kernel, shown),
        [names[op] for op in ops],
        compress(graph.detail, shown),
        compress(graph.resource, shown),
        compress(graph.kind, shown),
        [stated_s == stated_s for stated_s in compress(graph.stated_s, shown)],  # noqa: PLR0124 - not NaN
        strict=True,
    )
    columns = zip(
        tasks.tolist(),
        keys,
        ops,
        compress(graph.issue, shown),
        microseconds(rank.start_ns[tasks]),
        microseconds(rank.end_ns[tasks] - rank.start_ns[tasks]),
        np.isin(rank.offset + tasks, results.path.tasks).astype(np.int8).tolist(),
        strict=True,
    )
    parts: dict[Key, tuple[str, str, str]] = {}
    for task, key, op, call, start, duration, critical in columns:
        found = parts.get(key)
        if found is None:
            found = parts[key] = _parts(rank, results, key, task)
        head, tail, arrow = found
        correlation = rank.first_correlation + (task if call < 0 else call)
        yield (
            f'{head}{start},"dur":{duration},"args":{{{rank.external_ids[op]}'
            f'"correlation":{correlation},"critical":{critical},{tail}}}'
        )
        if call >= 0:
            yield f'{arrow}{start},"id":{correlation}}}'


def _parts(
    rank: RankTrace, results: Results, key: Key, task: int
) -> tuple[str, str, str]:
    """Return what equal tasks share: beginning, end, and the arrow's beginning."""
    number, op, detail, resource, kind, _ = key
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
    head = slice_start(category, _name(kind, kernel, op, detail), lane)
    return head, json.dumps(args)[1:], arrow_end("ac2g", lane)


def _copied(kernel: Kernel, duration_ns: int) -> dict[str, Any]:
    nbytes = kernel.params.get("bytes")
    moved = nbytes if isinstance(nbytes, int) else kernel.work.bytes_written
    rate = {"memory bandwidth (GB/s)": moved / duration_ns} if duration_ns else {}
    return {"bytes": moved, **rate}


def _name(kind: TaskKind, kernel: Kernel | None, op: str, detail: str) -> str:
    """Return a name that viewers and HolisticTraceAnalysis sort as Kineto's."""
    if kind is TaskKind.COPY:
        return _copy_name(kernel, detail)
    what = f"{kernel.op} {kernel.math}" if kernel is not None else detail or kind.value
    if kind is TaskKind.COLLECTIVE:
        name = kernel.op if kernel is not None else detail
        return f"ncclDevKernel_{_COLLECTIVES.get(name, name or 'Generic')}"
    return f"{op} {what}".strip()


def _copy_name(kernel: Kernel | None, detail: str) -> str:
    found = kernel.params.get("kind") if kernel is not None else None
    direction = found if isinstance(found, str) else detail
    pinned = kernel is None or kernel.params.get("pinned") is not False
    host = "Pinned" if pinned else "Pageable"
    sides = _SIDES.get(direction, "Device -> Device").format(host=host)
    return f"Memcpy {_KINDS.get(direction, direction)} ({sides})"
