"""A priced step: its tasks, what they take, and who waits for whom."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import attrs

from perfc.costmodels import Estimate
from perfc.ir import Diagnostic, LaunchGraph, UsageError
from perfc.passes import KernelCost, Pass, facts, timing
from perfc.passes.lowering import RECIPES, Recipe, recipe_of
from perfc.passes.manager import Analysis
from perfc.tools.oracle.memory import Memory, RememberedCost
from perfc.tools.oracle.places import Places
from perfc.tools.reports import Report, node_id
from perfc.tools.run import Run

_NOTHING: Mapping[int, float] = {}


@attrs.frozen
class StatedSchedule(timing.StreamSchedule):
    """The pass `stream-schedule`, with durations of some tasks set.

    Attributes:
        stated: Seconds by flat number of the task.

    """

    stated: Mapping[int, float] = attrs.field(default=_NOTHING, eq=False)

    def durations_s(
        self, hosted: Sequence[facts.HostedLaunches], costs: Sequence[Estimate]
    ) -> list[float]:
        """Return the seconds of every task, in flat order."""
        seconds = super().durations_s(hosted, costs)
        for task, taken_s in self.stated.items():
            seconds[task] = taken_s
        return seconds


@attrs.frozen(eq=False)
class Step:
    """A priced step, before anything is said of its durations.

    Attributes:
        run: What it is of.
        memory: What was worked out before.
        hosted: Launch graphs with what the host does.
        costs: What kernels cost.
        timeline: Who waits for whom.
        duration_s: Seconds of each task, by its flat number.
        shares: Whether tasks slow each other down, so that every change of a duration
            changes others.
        capped: Whether the board's power holds kernels down, which other host times
            would change.
        diagnostics: Remarks of the passes.

    """

    run: Run
    memory: Memory
    hosted: tuple[facts.HostedLaunches, ...]
    costs: tuple[Estimate, ...]
    timeline: timing.Timeline
    duration_s: list[float]
    shares: bool
    capped: bool
    diagnostics: tuple[Diagnostic, ...]

    @classmethod
    def of(cls, run: Run, memory: Memory) -> Step:
        """Lower and price a run."""
        return cls.priced(run, memory, lowered(run))

    @classmethod
    def priced(cls, run: Run, memory: Memory, launches: Analysis) -> Step:
        """Price a run that is lowered.

        Args:
            run: The run.
            memory: What was worked out before.
            launches: What `lowered` returned for it.

        """
        place, schedule = _schedule_of(run.passes)
        passes = [_remembering(memory, p) for p in run.passes[_first(run) : place]]
        analysis = run.went_on(passes, launches)
        hosted, costs = analysis.get(facts.HOSTED), analysis.get(facts.KERNEL_COST)
        timeline = timing.link(hosted, run.target)
        seconds = schedule.durations_s(hosted, costs)
        sustained = analysis.find(facts.SUSTAINED)
        return cls(
            run,
            memory,
            hosted,
            costs,
            timeline,
            seconds,
            schedule.shares(timeline),
            sustained is not None and sustained.slowdown > 1,
            analysis.diagnostics,
        )

    @functools.cached_property
    def network(self) -> timing.Network:
        """The schedule, to be solved for other durations."""
        return self.memory.network(self.timeline)

    @functools.cached_property
    def gap_kinds(self) -> list[int]:
        """Kind of the gap before each task: 0 none, 1 of a stream, 2 of a graph."""
        numbered = timing.TimeConstants(1.0, 2.0, 0.0)
        return [*map(int, timing.link_graphs(self.timeline.graphs, numbered).gap_s)]

    @functools.cached_property
    def places(self) -> Places:
        """Names of its tasks."""
        graphs: list[LaunchGraph] = [launches.graph for launches in self.hosted]
        return Places.of(self.run.model.program, graphs, self.timeline.offsets)

    @functools.cached_property
    def seconds(self) -> list[float]:
        """Seconds of each place of the network."""
        return self.network.spread(self.duration_s)

    @functools.cached_property
    def ends_s(self) -> list[float]:
        """When each place of the network ends."""
        return self.network.ends_s(self.seconds)

    def host_keys(self, rank: int) -> list[tuple[int, str, str, int]]:
        """Return names of the tasks of a rank class, by which they are told apart.

        Node, detail, and how many of the same came before: as it is called in other
        steps of the model.
        """
        graph = self.hosted[rank].graph
        names = [node_id(graph, op) for op in range(len(graph.ops))]
        seen: dict[tuple[str, str], int] = {}
        keys: list[tuple[int, str, str, int]] = []
        for op, detail in zip(graph.op, graph.detail, strict=True):
            name = (names[op] if op >= 0 else "", detail)
            seen[name] = seen.get(name, -1) + 1
            keys.append((rank, *name, seen[name]))
        return keys

    def time_s(self, stated: Mapping[int, float]) -> float:
        """Solve the schedule anew, with what tasks do to each other.

        Args:
            stated: Seconds of some tasks, by flat number.

        """
        return max(self.shared(stated)[1].end_s, default=0.0)

    def shared(
        self, stated: Mapping[int, float]
    ) -> tuple[timing.Timeline, facts.Schedule]:
        """Return the schedule, and who waits for whom, as tasks slow each other down.

        Args:
            stated: Seconds of some tasks, by flat number.

        """
        place, _ = _schedule_of(self.run.passes)
        passes = self._passes(stated)[: place + 1]
        analysis = attrs.evolve(self.run, passes=passes).ran()
        return analysis.get(timing.TIMELINE), analysis.get(facts.SCHEDULE)

    def report(self, stated: Mapping[int, float]) -> Report:
        """Return the report of the step with durations of some tasks set."""
        analysis = attrs.evolve(self.run, passes=self._passes(stated)).analysis()
        return Report(self.run, analysis)

    def _passes(self, stated: Mapping[int, float]) -> tuple[Pass, ...]:
        place, schedule = _schedule_of(self.run.passes)
        passes = [_remembering(self.memory, p) for p in self.run.passes]
        if stated:
            options = schedule.contention, schedule.high_priority
            passes[place] = StatedSchedule(*options, stated)
        return tuple(passes)


def lowered(run: Run) -> Analysis:
    """Return the launches of a run, before anything is priced."""
    _schedule_of(run.passes)
    return attrs.evolve(run, passes=run.passes[: _first(run)]).ran()


def recipes_of(run: Run) -> tuple[Analysis, list[Recipe]]:
    """Return the launches of a run, and how each of its graphs was lowered.

    The first pass is `lower-kernels`, and each rank class has an op graph.
    """
    begun = attrs.evolve(run, passes=run.passes[:1]).ran()
    recipes: list[Recipe] = []
    graphs = begun.get(facts.LAUNCHES)
    for rank, graph in zip(begun.program.classes, graphs, strict=True):
        assert rank.ops is not None  # noqa: S101 - for types
        known = begun.annotations.table(RECIPES, None)[rank.ops]
        recipes.append(recipe_of(known, graph))
    rest = run.passes[1 : _first(run)]
    return (run.went_on(rest, begun) if rest else begun), recipes


def _first(run: Run) -> int:
    priced = {facts.KERNEL_COST, facts.HOSTED}
    return next(n for n, p in enumerate(run.passes) if p.provides & priced)


def _remembering(memory: Memory, p: Pass) -> Pass:
    return RememberedCost(memory) if isinstance(p, KernelCost) else p


def _schedule_of(passes: Sequence[Pass]) -> tuple[int, timing.StreamSchedule]:
    for place, p in enumerate(passes):
        if facts.SCHEDULE in p.provides and isinstance(p, timing.StreamSchedule):
            return place, p
    msg = "an oracle needs the pass stream-schedule, which the pipeline has not"
    raise UsageError(msg)
