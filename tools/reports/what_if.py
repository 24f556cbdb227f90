"""The `what_if` of a report: what saves how much, best first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs

from perfc.ir import TaskKind
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.support import US, Json
from perfc.passes.facts import DATA_LOADING
from perfc.passes.what_if import HostSaving, OpSaving, Savings, SiteSaving
from perfc.tools.models import common_place
from perfc.tools.reports.nodes import node_modules
from perfc.tools.reports.results import Results
from perfc.tools.reports.variants import CUDA_GRAPH

if TYPE_CHECKING:
    from perfc.passes.loading import LoadedStep

_S = TypeVar("_S", OpSaving, SiteSaving, HostSaving)
ALL = "all"
_LAUNCHING = frozenset({TaskKind.HOST, TaskKind.CALL})
"""What the host does for each launch; it waits besides."""

_OVERHEADS = frozenset({"T1", "T2", "T3", "T4", "T5"})


def what_if_report(
    results: Results, savings: Savings, changes: list[Json], ranking: list[Json]
) -> Json:
    """Return the `what_if` of a report; times are savings in microseconds.

    Args:
        results: The analysis.
        savings: What the pass `what-if` found.
        changes: `saved_us` of each change that applies, or why it is `refused`.
        ranking: What to fix next, from `ranked`.

    """
    graphs = [change for change in changes if change["pass"] == CUDA_GRAPH]
    told = ("saved_us", "refused")
    return {
        "changes": [
            {k: v for k, v in change.items() if k in ("pass", "what", *told)}
            for change in changes
        ],
        "cuda_graph": {k: v for g in graphs for k, v in g.items() if k in told},
        "host": {
            saving.detail: {
                "saved_2x_us": saving.twice_s * US,
                "saved_if_free_us": saving.free_s * US,
            }
            for saving in savings.host
        },
        "nodes": [_node(results, saving) for saving in savings.ops],
        "ranked": ranking,
    }


def behind(savings: Savings, loaded: LoadedStep) -> Savings:
    """Return savings in a step as those of the step behind its input pipeline."""

    def kept(entries: Sequence[_S], *names: str) -> list[_S]:
        found: list[_S] = []
        for entry in entries:
            saved_us = [loaded.kept_us(getattr(entry, name) * US) for name in names]
            if any(saved_us):
                times = dict(zip(names, (us / US for us in saved_us), strict=True))
                changed: _S = attrs.evolve(cast("Any", entry), **times)
                found.append(changed)
        return found

    return attrs.evolve(
        savings,
        find_ops=lambda: kept(savings.ops, "twice_s", "bound_s", "host_twice_s"),
        find_sites=lambda: kept(savings.sites, "twice_s", "bound_s"),
        find_host=lambda: kept(savings.host, "twice_s", "free_s"),
    )


def chunked(results: Results, loaded: LoadedStep | None) -> Json:
    """Return the time of a forward pass that is copied and computed in chunks.

    Every chunk launches all kernels again, which takes the host what it takes now.
    """
    from perfc.passes.what_if import best_chunks, chunked_s

    graph = results.graphs[results.critical]
    taken_s = results.class_tasks(results.schedule.durations_s, results.critical)
    parts: dict[str, list[float]] = {"h2d": [], "": [], "d2h": []}
    host_s = 0.0
    for kind, detail, seconds in zip(
        graph.kind, graph.detail, taken_s.tolist(), strict=True
    ):
        if kind in _LAUNCHING and detail != DATA_LOADING:
            host_s += seconds
        elif kind is TaskKind.COPY and detail in parts:
            parts[detail].append(seconds)
        elif kind in BUSY_KINDS:
            parts[""].append(seconds)
    sums = [math.fsum(part) for part in parts.values()]
    chunks = best_chunks(sums, host_s)
    time_us = chunked_s(sums, chunks, host_s) * US
    step_us = results.path.time_s * US if loaded is None else loaded.step_us
    saved_us = max(0.0, step_us - time_us) if chunks > 1 else 0.0
    return {
        "chunks": chunks,
        "copy_in_us": sums[0] * US,
        "compute_us": sums[1] * US,
        "copy_out_us": sums[2] * US,
        "overhead_us": host_s * US,
        "time_us": time_us,
        "saved_us": saved_us if loaded is None else loaded.kept_us(saved_us),
    }


def data_rows(loaded: LoadedStep | None, chunks: Json | None) -> list[Json]:
    """Return the rows of what to fix next that are about data, not about the model."""
    rows: list[Json] = []
    if chunks is not None and chunks["saved_us"] > 0:
        reason = "copies in and out, and kernels, of different chunks run side by side"
        row = _row("data", f"split into {chunks['chunks']} chunks", "inputs", reason)
        rows.append({**row, "saved_us": chunks["saved_us"]})
    if loaded is None:
        return rows
    if not loaded.loading.overlapped:
        reason = "batches are loaded while others are computed"
        row = _row("data", "overlapped loading", DATA_LOADING, reason)
        rows.append({**row, "saved_us": loaded.serial_us - loaded.overlapped_us})
    for stage in loaded.loading.stages:
        saved_us = loaded.saved_us(stage.name)
        reason = f"a batch comes every {stage.pace_us:.6g} us"
        row = _row("data", f"faster {stage.name}", DATA_LOADING, reason)
        rows.append({**row, "saved_us": saved_us, "saved_2x_us": saved_us})
    return [row for row in rows if row["saved_us"] > 0]


def ranked(
    results: Results, savings: Savings, changes: list[Json], others: Sequence[Json] = ()
) -> list[Json]:
    """Return the rows of what to fix next, best first, and others among them.

    Ops count as far as they can get: twice as fast, but no faster than their flops
    and bytes allow.
    """
    rows = [_site(results, site) for site in savings.sites if site.reachable_s]
    rows += [_host(savings, all_) for all_ in savings.host if all_.detail == ALL]
    for change in changes:
        if change.get("saved_us", 0.0) > 0:
            row = _row("runtime", change["what"], change["where"], change["reason"])
            rows.append({**row, "saved_us": change["saved_us"]})
    rows += others
    return sorted(rows, key=lambda row: (-row["saved_us"], row["what"], row["where"]))


def _row(kind: str, what: str, where: str, reason: str) -> Json:
    return {
        "kind": kind,
        "what": what,
        "where": where,
        "reason": reason,
        "nodes": [],
        "saved_us": 0.0,
        "saved_2x_us": None,
        "saved_at_bound_us": None,
    }


def _host(savings: Savings, all_: HostSaving) -> Json:
    share = all_.free_s / savings.time_s
    parts = [saving.detail for saving in savings.host if saving is not all_]
    longest = f", {parts[0]} most of it" if parts else ""  # alone, none may save any
    reason = (
        f"{100 * share:.0f} % of the time is the host's alone{longest} "
        "(--pass faster-host)"
    )
    others = [part for part in parts if part not in _OVERHEADS]
    where = ", ".join(["T1 to T5", *sorted(others)])
    row = _row("host", "host overheads", where, reason)
    return {**row, "saved_us": all_.twice_s * US, "saved_2x_us": all_.twice_s * US}


def _site(results: Results, site: SiteSaving) -> Json:
    modules = {rank: node_modules(results, rank) for rank in {r for r, _ in site.ops}}
    nodes = [(rank, results.node_id(rank, op)) for rank, op in site.ops]
    where = [modules[rank].get(node) or node for rank, node in nodes]
    ratio = site.seconds / site.least_s if site.least_s else math.inf
    reason = (
        f"takes {ratio:.1f} times its bound" if ratio < math.inf else "has no bound"
    )
    row = _row("op", site.name, common_place(where), reason)
    return {
        **row,
        "nodes": [node for _, node in nodes],
        "saved_us": site.reachable_s * US,
        "saved_2x_us": site.twice_s * US,
        "saved_at_bound_us": site.bound_s * US,
    }


def _node(results: Results, saving: OpSaving) -> Json:
    return {
        "id": results.node_id(saving.rank, saving.op),
        "rank": results.program.classes[saving.rank].ranks[0],
        "saved_2x_us": saving.twice_s * US,
        "saved_at_bound_us": saving.bound_s * US,
        "saved_host_2x_us": saving.host_twice_s * US,
    }
