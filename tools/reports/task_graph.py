"""The scheduled tasks of a report as a networkx graph, for questions of one's own."""

from __future__ import annotations

import networkx as nx

from perfc.ir.support import US
from perfc.tools.reports.results import Results


def task_graph(results: Results) -> nx.DiGraph[int]:
    """Return the tasks, and what each waits for.

    Nodes are task numbers with `kind`, `detail`, `op`, `node` (an id of the
    report's nodes), `rank`, `resource`, `start_us`, `duration_us`, `slack_us` and
    `on_critical_path`. Edges lead from what has to end first; their `kind` is `order`
    on one resource, `launch` from a call to its device task, or `wait`. Where two
    apply, the edge has the last of these.
    """
    graph: nx.DiGraph[int] = nx.DiGraph()
    for rank, hosted in enumerate(results.hosted):
        offset = results.schedule.offsets[rank]
        tasks, last = hosted.graph, dict[int, int]()
        for index in range(len(tasks)):
            task, resource = offset + index, tasks.resource[index]
            graph.add_node(task, **_describe(results, rank, index))
            if resource in last:
                graph.add_edge(last[resource], task, kind="order")
            if tasks.issue[index] >= 0:
                graph.add_edge(offset + tasks.issue[index], task, kind="launch")
            for earlier in tasks.after[index]:
                graph.add_edge(offset + earlier, task, kind="wait")
            last[resource] = task
    return graph


def _describe(results: Results, rank: int, index: int) -> dict[str, object]:
    tasks, schedule = results.hosted[rank].graph, results.schedule
    task, op = schedule.offsets[rank] + index, tasks.op[index]
    return {
        "kind": tasks.kind[index].value,
        "detail": results.detail(task),
        "op": tasks.ops[op].name if op >= 0 else "",
        "node": results.node_of(task),
        "rank": results.program.classes[rank].ranks[0],
        "resource": tasks.resources[tasks.resource[index]].name,
        "start_us": schedule.start_s[task] * US,
        "duration_us": schedule.duration_s[task] * US,
        "slack_us": results.path.slack_s[task] * US,
        "on_critical_path": task in results.on_path,
    }
