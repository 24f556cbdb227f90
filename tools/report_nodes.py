"""The `nodes` of a report: one entry per op, from its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, hypot
from typing import Any, TypeAlias

import attrs

from perfc.costmodels import Estimate
from perfc.ir import BUSY_KINDS, NOWHERE, Graph, LaunchGraph, Location
from perfc.tools.results import Results

Json: TypeAlias = dict[str, Any]
US = 1e6
Z90 = 1.645
"""Standard deviations from the median to the 5th and 95th percentile."""


def node_entries(results: Results) -> list[Json]:
    """Return one entry per op of every rank class, in program order."""
    entries: list[Json] = []
    for number, rank in enumerate(results.program.classes):
        locations = _locations(rank.ops)
        for op, tasks in _tasks_by_op(results.hosted[number].graph):
            view = _OpView(results, number, op, tasks)
            entries.append(view.entry(locations, rank.ranks[0]))
    return entries


def _locations(graph: Graph | None) -> Mapping[str, Location]:
    """Where each node comes from, by the name of its first result."""
    if graph is None:
        return {}
    return {n.results[0].name: n.location for n in graph if n.results}


def _tasks_by_op(graph: LaunchGraph) -> Iterator[tuple[int, Sequence[int]]]:
    tasks: list[list[int]] = [[] for _ in graph.ops]
    for index, op in enumerate(graph.op):
        if op >= 0:
            tasks[op].append(index)
    return enumerate(tasks)


@attrs.frozen(eq=False)
class _OpView:
    """One op of one rank class, and its tasks."""

    results: Results
    rank: int
    op: int
    tasks: Sequence[int]

    def entry(self, locations: Mapping[str, Location], rank: int) -> Json:
        graph = self.results.hosted[self.rank].graph
        op = graph.ops[self.op]
        location = locations.get(op.node, NOWHERE)
        device = [i for i in self.tasks if graph.kind[i] in BUSY_KINDS]
        timed = device or self.tasks
        duration_us, low_us, high_us = self._duration(device or self.tasks)
        stream = graph.resources[graph.resource[device[0]]].name if device else ""
        return {
            "id": op.node or f"op{self.op}",
            "op": op.name,
            "phase": location.phase,
            "module": location.module,
            "source": location.source,
            "rank": rank,
            "stream": stream,
            "start_us": min((self._start_us(i) for i in timed), default=0.0),
            "duration_us": duration_us,
            "duration_us_p05": low_us,
            "duration_us_p95": high_us,
            **self._work(device),
            **self._price(device),
            "on_critical_path": not self._flat(self.tasks).isdisjoint(
                self.results.on_path
            ),
            "slack_us": min(
                (self.results.path.slack_s[t] * US for t in self._flat(timed)),
                default=0.0,
            ),
        }

    def _flat(self, tasks: Sequence[int]) -> set[int]:
        offset = self.results.schedule.offsets[self.rank]
        return {offset + task for task in tasks}

    def _start_us(self, task: int) -> float:
        offset = self.results.schedule.offsets[self.rank]
        return self.results.schedule.start_s[offset + task] * US

    def _duration(self, tasks: Sequence[int]) -> tuple[float, float, float]:
        """Return microseconds: predicted, 5th and 95th percentile.

        Errors of one op's tasks are taken to move together.
        """
        hosted, costs = self.results.hosted[self.rank], self.results.costs[self.rank]
        offset = self.results.schedule.offsets[self.rank]
        total = low = high = 0.0
        for task in tasks:
            seconds = self.results.schedule.duration_s[offset + task]
            kernel = hosted.graph.kernel[task]
            if kernel >= 0:
                sigma = hypot(
                    costs.sigma_shared[kernel], costs.sigma_independent[kernel]
                )
            else:
                sigma = hypot(hosted.sigma_shared, hosted.sigma_independent)
            total += seconds
            low += seconds * exp(-Z90 * sigma)
            high += seconds * exp(Z90 * sigma)
        return total * US, low * US, high * US

    def _work(self, device: Sequence[int]) -> Json:
        graph = self.results.hosted[self.rank].graph
        kernels = [
            graph.kernels[graph.kernel[i]] for i in device if graph.kernel[i] >= 0
        ]
        return {
            "flops": sum(kernel.work.flops for kernel in kernels),
            "bytes": sum(kernel.work.bytes for kernel in kernels),
        }

    def _price(self, device: Sequence[int]) -> Json:
        """The model of the op's longest kernel stands for the op."""
        graph = self.results.hosted[self.rank].graph
        costs: Estimate = self.results.costs[self.rank]
        priced = [graph.kernel[i] for i in device if graph.kernel[i] >= 0]
        if not priced:
            return {"cost_model": "", "provenance": "analytic"}
        longest = max(priced, key=lambda kernel: float(costs.seconds[kernel]))
        return {
            "cost_model": costs.model[longest],
            "provenance": costs.provenance[longest].value,
        }
