"""The facts a report is made from, with lookups by flat task number."""

from __future__ import annotations

import bisect
import functools
import math

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Estimate, Provenance
from perfc.ir import Kernel, LaunchGraph, Program, TaskKind
from perfc.ir.launch import HOST_KINDS
from perfc.ir.support import brief
from perfc.passes import KERNEL_COST, Timeline, facts
from perfc.passes.lowering import WORK_WAIT
from perfc.passes.manager import Analysis
from perfc.passes.timing import TIMELINE


@attrs.frozen
class Price:
    """Source of a duration.

    Attributes:
        model: Name of the cost model, `host-profile`, or `stated` for a duration
            that stands in the source (a test, a trace).
        provenance: What kind of number it is.
        sigma: Its relative uncertainty (standard deviation of the logarithm).

    """

    model: str
    provenance: Provenance
    sigma: float


STATED = Price("stated", Provenance.MEASURED, 0.0)


@attrs.frozen(eq=False)
class Results:
    """What the passes left, typed.

    Attributes:
        program: The program.
        hosted: Launch graph with host segments, per rank class.
        costs: Cost of each kernel signature, per rank class.
        schedule: When every task runs.
        timeline: Who waits for whom.
        path: The critical path.
        interval: The interval of the time.
        sustained: What boards draw; None where nobody knows.

    """

    __repr__ = brief

    program: Program
    hosted: tuple[facts.HostedLaunches, ...]
    costs: tuple[Estimate, ...]
    schedule: facts.Schedule
    timeline: Timeline
    path: facts.Path
    interval: facts.Interval
    sustained: facts.Sustained | None = None

    @property
    def graphs(self) -> list[LaunchGraph]:
        """The launch graph of each rank class, with what the host does."""
        return [launches.graph for launches in self.hosted]

    @classmethod
    def of(cls, analysis: Analysis) -> Results:
        """Collect the facts of *analysis*."""
        return cls(
            analysis.program,
            analysis.get(facts.HOSTED),
            analysis.get(KERNEL_COST),
            analysis.get(facts.SCHEDULE),
            analysis.get(TIMELINE),
            analysis.get(facts.CRITICAL_PATH),
            analysis.get(facts.INTERVAL),
            analysis.find(facts.SUSTAINED),
        )

    @functools.cached_property
    def critical(self) -> int:
        """The rank class that ends last, which decides the time."""
        return self.place(self.path.tasks[-1])[0] if self.path.tasks else 0

    def class_tasks(
        self, column: NDArray[np.float64], number: int
    ) -> NDArray[np.float64]:
        """Return the part of a flat column that is of one rank class."""
        first = self.schedule.offsets[number]
        return column[first : first + len(self.hosted[number].graph)]

    def place(self, task: int) -> tuple[int, int]:
        """Return the rank class of a flat task number, and its number there."""
        rank = bisect.bisect_right(self.schedule.offsets, task) - 1
        return rank, task - self.schedule.offsets[rank]

    def kernel(self, task: int) -> Kernel | None:
        """Return the signature of a device task, if it has one."""
        rank, index = self.place(task)
        graph = self.hosted[rank].graph
        number = graph.kernel[index]
        return graph.kernels[number] if number >= 0 else None

    def detail(self, task: int) -> str:
        """Return `T1`…`T5` of a host task, the op class of a device task.

        `T4` is the time in a runtime call. The class of a copy is its direction,
        as `h2d`; a synchronisation goes by the name of its call.
        """
        rank, index = self.place(task)
        return detail_of(self.hosted[rank].graph, index)

    def price(self, rank: int, task: int) -> Price:
        """Return where the duration of a task of a rank class comes from."""
        graph = self.hosted[rank].graph
        on_host = graph.kind[task] in HOST_KINDS
        # The pass `overhead` states the times that it takes from a profile.
        from_profile = on_host and self.program.classes[rank].launches is None
        if not from_profile and not math.isnan(graph.stated_s[task]):
            return STATED
        if on_host:
            return self._host_prices[rank]
        kernel = graph.kernel[task]
        return STATED if kernel < 0 else self._kernel_prices[rank][kernel]

    @functools.cached_property
    def _host_prices(self) -> list[Price]:
        """What the host's own tasks cost, by rank class."""
        sigmas = [math.hypot(h.sigma_shared, h.sigma_independent) for h in self.hosted]
        return [Price("host-profile", Provenance.FITTED, sigma) for sigma in sigmas]

    @functools.cached_property
    def _kernel_prices(self) -> list[list[Price]]:
        """What kernels cost, by rank class and number."""
        return [
            [
                Price(*price)
                for price in zip(
                    costs.model, costs.provenance, costs.sigma.tolist(), strict=True
                )
            ]
            for costs in self.costs
        ]

    def node_id(self, rank: int, op: int) -> str:
        """Return the name of an op in a report, the same wherever it stands."""
        return node_id(self.hosted[rank].graph, op)

    def node_of(self, task: int) -> str:
        """Return the name of the op of a task; one that has none is its own."""
        rank, index = self.place(task)
        graph = self.hosted[rank].graph
        op = graph.op[index]
        return self.node_id(rank, op) if op >= 0 else lone_id(graph, index)

    @functools.cached_property
    def on_path(self) -> frozenset[int]:
        """Flat numbers of the tasks on the critical path."""
        return frozenset(self.path.segment_table.task.tolist())


def detail_of(graph: LaunchGraph, task: int) -> str:
    """Return the detail of a task: see `Results.detail`."""
    kind, number = graph.kind[task], graph.kernel[task]
    if kind is TaskKind.CALL:
        return "T4"
    if number >= 0 and (kind is not TaskKind.COPY or not graph.detail[task]):
        return graph.kernels[number].op
    return graph.detail[task] or kind.value


def node_id(graph: LaunchGraph, op: int) -> str:
    """Return the name of an op in a report."""
    launched = graph.ops[op]
    if launched.name == WORK_WAIT:  # before an op, for a collective
        return f"{launched.node}.wait"
    return launched.node or f"{launched.name}#{op}"


def lone_id(graph: LaunchGraph, task: int) -> str:
    """Return the name, in a report, of a task that belongs to no op."""
    return f"{graph.kind[task].value}#{task}"
