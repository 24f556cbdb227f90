"""The format `trace`: Chrome trace JSON as PyTorch's profiler (Kineto) writes it.

Field names and their spelling are those of traces that PyTorch 2 writes with
`record_shapes=True`. https://docs.pytorch.org/docs/stable/profiler.html; the
format under it is the Trace Event Format of the Chromium project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from perfc.costmodels import Target
from perfc.exporters.kineto.memory import memory_counters
from perfc.exporters.kineto.path import path_arrows
from perfc.exporters.kineto.rank import RankTrace, rank_traces
from perfc.exporters.kineto.slices import rank_slices
from perfc.ir import PerfcError
from perfc.ir.support import Json
from perfc.tools import Exporter, Report

_COMPUTE_CAPABILITY = re.compile(r"(\d+)\.(\d+)")
MOST_RANKS = 1024
"""Traces that are written into one folder."""

_GPU_SORT_INDEX = 5_000_000
"""Kineto's: processes of GPUs stand below those of hosts."""


class KinetoTrace(Exporter):
    """The schedule as a profiler would have recorded it."""

    splits: ClassVar[bool] = True

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the trace, one process per rank and per GPU."""
        (report,) = reports
        ranks = list(rank_traces(report.results))
        header = _header(report, ranks, ranks[0].rank)
        arrows = path_arrows(ranks, report.results)
        return _text(header, _events(report, ranks, arrows))

    def split(self, report: Report) -> Iterator[tuple[str, str]]:
        """Return the trace of each rank, as its own profiler writes it."""
        classes = report.results.program.classes
        count = sum(len(one.ranks) for one in classes)
        if count > MOST_RANKS:
            msg = (
                f"a trace of each of {count:,} ranks is asked for, and a folder takes "
                f"{MOST_RANKS:,}; name a file, which shows one of those that are alike"
            )
            raise PerfcError(msg)
        ranks = list(rank_traces(report.results))
        for alone, alike in zip(ranks, classes, strict=True):
            arrows = path_arrows(ranks, report.results, alone)
            events = _events(report, [alone], arrows)
            for rank in alike.ranks:
                header = _header(report, [alone], rank)
                yield f"rank{rank}.json.gz", _text(header, events)


def _text(header: Json, events: str) -> str:
    # The header's closing brace goes, so that the events come into it.
    return f'{json.dumps(header, indent=1)[:-2]},\n"traceEvents": [\n{events}\n]}}\n'


def _events(report: Report, ranks: Sequence[RankTrace], arrows: Sequence[str]) -> str:
    named = (event for rank in ranks for event in _metadata(rank, report))
    pieces = [",\n".join(named)]
    for rank in ranks:
        pieces += rank_slices(rank, report.results)
    pieces += arrows
    for rank in ranks:
        use = report.memory_uses[rank.number]
        pieces += memory_counters(rank, report.results, use)
    return "".join(pieces)


def _header(report: Report, ranks: Sequence[RankTrace], rank: int) -> Json:
    lanes = [lane for rank in ranks for lane in rank.lanes]
    devices = sorted({lane.device for lane in lanes if lane.device >= 0})
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": device, **_properties(report.target)} for device in devices
        ],
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": sum(len(c.ranks) for c in report.results.program.classes),
        },
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": report.model.name,
        "perfc": report.header,
    }


def _properties(target: Target) -> Json:
    """Return those fields of `cudaDeviceProp` that the target's sheet knows."""
    device = target.device
    found = {
        "name": f"{device.vendor} {device.name}",
        "totalGlobalMem": device.memory.capacity_bytes,
        "maxThreadsPerMultiprocessor": device.max_threads_per_sm,
        "regsPerMultiprocessor": device.registers_per_sm,
        "sharedMemPerMultiprocessor": device.shared_memory_bytes_per_sm,
        "numSms": device.sm_count,
        "warpSize": device.warp_size,
    }
    capability = _COMPUTE_CAPABILITY.fullmatch(device.compute_capability)
    if capability is None:
        return found
    major, minor = map(int, capability.groups())
    return {**found, "computeMajor": major, "computeMinor": minor}


def _metadata(rank: RankTrace, report: Report) -> Iterator[str]:
    """Name and sort processes and threads, and mark the iteration."""
    yield from _process(rank.host_pid, "CPU", rank.host_pid)
    for pid in sorted({lane.pid for lane in rank.lanes if lane.device >= 0}):
        yield from _process(pid, f"GPU {pid}", _GPU_SORT_INDEX + pid)
    for lane in rank.lanes:
        for what, value in (
            ("thread_name", {"name": lane.label}),
            ("thread_sort_index", {"sort_index": lane.tid}),
        ):
            yield _meta(what, lane.pid, lane.tid, value)
    # The iteration, as `torch.profiler`'s `step()` marks it.
    event: Json = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#0",
        "pid": rank.host_pid,
        "tid": rank.host_pid,
        "ts": 0,
        "dur": round(report.time_us, 3),
        "args": {},
    }
    yield json.dumps(event)


def _process(pid: int, label: str, sort_index: int) -> Iterator[str]:
    yield _meta("process_name", pid, 0, {"name": "perfc prediction"})
    yield _meta("process_labels", pid, 0, {"labels": label})
    yield _meta("process_sort_index", pid, 0, {"sort_index": sort_index})


def _meta(what: str, pid: int, tid: int, args: Json) -> str:
    event = {"ph": "M", "name": what, "ts": 0, "pid": pid, "tid": tid, "args": args}
    return json.dumps(event)
