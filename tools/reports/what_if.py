"""The `what_if` of a report: what saves how much, best first."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from perfc.passes.what_if import HostSaving, OpSaving, Savings, SiteSaving
from perfc.tools.models import common_place
from perfc.tools.reports.nodes import node_modules
from perfc.tools.reports.results import Results
from perfc.tools.reports.variants import CUDA_GRAPH

Json: TypeAlias = dict[str, Any]
US = 1e6
ALL = "all"
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


def ranked(results: Results, savings: Savings, changes: list[Json]) -> list[Json]:
    """Return the rows of what to fix next, best first.

    Ops count as far as they can get: twice as fast, but no faster than their flops
    and bytes allow.
    """
    rows = [_site(results, site) for site in savings.sites if site.reachable_s]
    rows += [_host(savings, all_) for all_ in savings.host if all_.detail == ALL]
    for change in changes:
        if change.get("saved_us", 0.0) > 0:
            row = _row("runtime", change["what"], change["where"], change["reason"])
            rows.append({**row, "saved_us": change["saved_us"]})
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
