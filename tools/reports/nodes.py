"""The `nodes` of a report: one entry per op, from its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

import attrs

from perfc.costmodels import COLLECTIVES
from perfc.ir import Graph, LaunchOp
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.location import NOWHERE, Location
from perfc.ir.support import US, Json
from perfc.passes.lowering import fused_nodes
from perfc.tools.models import common_name
from perfc.tools.reports.results import STATED, Results, lone_id

NODE_KEYS = (
    "id",
    "op",
    "phase",
    "module",
    "source",
    "rank",
    "stream",
    "start_us",
    "duration_us",
    "duration_us_p05",
    "duration_us_p95",
    "flops",
    "bytes",
    "message_bytes",
    "cost_model",
    "provenance",
    "on_critical_path",
    "slack_us",
    "fuses",
    "operands",
    "kernels",
)
"""What is said of every op, in the order in which tables show it."""

Z90 = 1.645
"""Standard deviations from the median to the 5th and 95th percentile."""


def node_entries(results: Results) -> list[Json]:
    """Return one entry per op of every rank class, in program order.

    A task that belongs to no op has an entry of its own, after the ops.
    """
    entries: list[Json] = []
    for number, rank in enumerate(results.program.classes):
        locations = _locations(rank.ops)
        operands = _operands(rank.ops, results.program.bindings)
        graph = results.hosted[number].graph
        # The tasks of each op, and those of none.
        by_op: list[list[int]] = [[] for _ in graph.ops]
        lone: list[int] = []
        for index, op in enumerate(graph.op):
            (by_op[op] if op >= 0 else lone).append(index)
        for op, tasks in enumerate(by_op):
            launched = graph.ops[op]
            view = _OpView(results, number, tasks)
            location = _location(launched, locations)
            name = results.node_id(number, op)
            entry = view.entry(name, launched.name, rank.ranks[0], location)
            entry["fuses"] = list(fused_nodes(launched))
            entry["operands"] = [*operands.get(launched.node, ())]
            entries.append({**entry, "kernels": view.kernels()})
        for task in lone:
            view = _OpView(results, number, [task])
            name, what = lone_id(graph, task), graph.detail[task]
            op_name = what or graph.kind[task].value
            entry = view.entry(name, op_name, rank.ranks[0], NOWHERE)
            entry |= {"fuses": [], "operands": []}
            entries.append({**entry, "kernels": view.kernels()})
    return entries


def _locations(graph: Graph | None) -> Mapping[str, Location]:
    if graph is None:
        return {}
    return {node.name: node.location for node in graph}


def _operands(
    graph: Graph | None, bindings: Mapping[str, int]
) -> Mapping[str, Sequence[str]]:
    """Return the types of what each node reads, by its name; of inputs, their own."""
    if graph is None:
        return {}
    text = {
        value: "?" if value.type is None else str(value.type.bind(bindings))
        for value in graph.values()
    }
    found: dict[str, Sequence[str]] = {v.name: (text[v],) for v in graph.inputs}
    for node in graph:
        found[node.name] = [text.get(value, "?") for value in node.operands]
    return found


def _location(op: LaunchOp, locations: Mapping[str, Location]) -> Location:
    """Return the location of an op; that of several nodes is what modules share."""
    location = locations.get(op.node, NOWHERE)
    nodes = fused_nodes(op)
    if not nodes:
        return location
    modules = {locations.get(node, NOWHERE).module for node in nodes}
    return attrs.evolve(location, module=common_name(sorted(modules - {""}) or [""]))


def node_modules(results: Results, rank: int) -> Mapping[str, str]:
    """Return the module of each node of a rank class, by the name of the node."""
    locations = _locations(results.program.classes[rank].ops)
    return {name: location.module for name, location in locations.items()}


@attrs.frozen(eq=False)
class _OpView:
    """One op of one rank class, and its tasks."""

    results: Results
    rank: int
    tasks: Sequence[int]

    def entry(self, name: str, op: str, rank: int, location: Location) -> Json:
        """Return the report's entry of the op.

        Start, duration and price are those of its device tasks; an op without
        any is timed by its host tasks. Path and slack take all of them.
        """
        results, graph = self.results, self.results.hosted[self.rank].graph
        device = [i for i in self.tasks if graph.kind[i] in BUSY_KINDS]
        timed = device or self.tasks
        flat = [results.schedule.offsets[self.rank] + task for task in self.tasks]
        stream = graph.resources[graph.resource[device[0]]].name if device else ""
        starts_s = [self._start_s(task) for task in timed]
        slacks_s = [results.path.slack_s[task] for task in flat]
        return {
            "id": name,
            "op": op,
            "phase": location.phase,
            "module": location.module,
            "source": location.source,
            "rank": rank,
            "stream": stream,
            "start_us": min(starts_s, default=0.0) * US,
            **self._times(timed),
            **self._work(device),
            "on_critical_path": not results.on_path.isdisjoint(flat),
            "slack_us": min(slacks_s, default=0.0) * US,
        }

    def kernels(self) -> list[str]:
        """Return op, type and mode of each kernel that a node launches, in order."""
        graph = self.results.hosted[self.rank].graph
        kernels = [
            graph.kernels[n]
            for n in map(graph.kernel.__getitem__, self.tasks)
            if n >= 0
        ]
        return [" ".join(filter(None, (k.op, k.dtype, k.math))) for k in kernels]

    def _start_s(self, task: int) -> float:
        offset = self.results.schedule.offsets[self.rank]
        return self.results.schedule.start_s[offset + task]

    def _times(self, tasks: Sequence[int]) -> Json:
        """Return microseconds with their 5th and 95th percentile, and the price.

        Errors of one op's tasks are taken to move together. The longest task
        says which model priced the op.
        """
        offset = self.results.schedule.offsets[self.rank]
        total_s = low_s = high_s = 0.0
        longest_s, longest = -1.0, STATED
        for task in tasks:
            seconds = self.results.schedule.duration_s[offset + task]
            price = self.results.price(self.rank, task)
            total_s += seconds
            low_s += seconds * exp(-Z90 * price.sigma)
            high_s += seconds * exp(Z90 * price.sigma)
            if seconds > longest_s:
                longest_s, longest = seconds, price
        return {
            "duration_us": total_s * US,
            "duration_us_p05": low_s * US,
            "duration_us_p95": high_s * US,
            "cost_model": longest.model,
            "provenance": longest.provenance.value,
        }

    def _work(self, device: Sequence[int]) -> Json:
        graph = self.results.hosted[self.rank].graph
        kernels = [
            graph.kernels[graph.kernel[i]] for i in device if graph.kernel[i] >= 0
        ]
        sent = [kernel for kernel in kernels if kernel.op in COLLECTIVES]
        return {
            "flops": sum(kernel.work.flops for kernel in kernels),
            "bytes": sum(kernel.work.bytes for kernel in kernels),
            "message_bytes": sum(kernel.params.integer("bytes") for kernel in sent),
        }
