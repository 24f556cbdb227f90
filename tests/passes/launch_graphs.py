"""Random launch graphs, with host times and kernel costs, from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import attrs
import numpy as np

from perfc.costmodels import Estimate, Provenance, Target, load_target
from perfc.costmodels.machine import RuntimeConstants
from perfc.ir import NO_WORK, Kernel, LaunchGraph, Program, Record, TaskKind
from perfc.ir.annotations import Annotations
from perfc.ir.launch import verify_launches
from perfc.ir.program import RankClass
from perfc.passes import KERNEL_COST, PassManager
from perfc.passes.facts import (
    CRITICAL_PATH,
    HOSTED,
    INTERVAL,
    SCHEDULE,
    HostedLaunches,
    Interval,
    Path,
    Schedule,
)
from perfc.passes.timing import (
    TIMELINE,
    CriticalPath,
    StreamSchedule,
    TimeInterval,
    Timeline,
)

LATENCY_S = 3e-6
GAP_S = 1e-6
GRAPH_GAP_S = 0.4e-6
_V100 = load_target("v100")
TARGET: Target = attrs.evolve(
    _V100,
    runtime=RuntimeConstants(launch_latency_s=LATENCY_S),
    device=attrs.evolve(_V100.device, stream_gap_s=GAP_S, graph_gap_s=GRAPH_GAP_S),
)


@attrs.frozen(eq=False)
class Case:
    """All that the timing passes need.

    Attributes:
        hosted: Launch graph and host times of each rank class.
        costs: Estimate of each class's kernels.
        seconds: What each task takes, class by class.

    """

    hosted: tuple[HostedLaunches, ...]
    costs: tuple[Estimate, ...]
    seconds: tuple[list[float], ...]

    @property
    def graphs(self) -> list[LaunchGraph]:
        """Launch graph of each class."""
        return [launches.graph for launches in self.hosted]

    def flat(self) -> list[tuple[int, int]]:
        """Class and index of each task, in flat order."""
        return [(c, i) for c, g in enumerate(self.graphs) for i in range(len(g))]

    def slower(self, task: tuple[int, int], by_s: float) -> tuple[list[float], ...]:
        """Return `seconds` with one task made longer."""
        rank, index = task
        changed = tuple(list(column) for column in self.seconds)
        changed[rank][index] += by_s
        return changed

    def less_certain(self, *, host: float, device: float) -> Case:
        """Return the case with the uncertainties multiplied."""
        return attrs.evolve(
            self,
            hosted=tuple(
                attrs.evolve(
                    launches,
                    sigma_shared=launches.sigma_shared * host,
                    sigma_independent=launches.sigma_independent * host,
                )
                for launches in self.hosted
            ),
            costs=tuple(
                attrs.evolve(
                    cost,
                    sigma_shared=cost.sigma_shared * device,
                    sigma_independent=cost.sigma_independent * device,
                )
                for cost in self.costs
            ),
        )


@attrs.frozen(eq=False)
class Result:
    """What the timing passes say of a case."""

    schedule: Schedule
    path: Path
    interval: Interval
    timeline: Timeline


def analyse(case: Case, target: Target = TARGET) -> Result:
    """Run the timing passes."""
    classes = tuple(RankClass((i,), launches=g) for i, g in enumerate(case.graphs))
    program = Program("random", classes)
    facts = Annotations()
    facts.set(HOSTED, program, case.hosted, None)
    facts.set(KERNEL_COST, program, case.costs, None)
    passes = (StreamSchedule(contention=False), CriticalPath(), TimeInterval())
    manager = PassManager(passes, given=frozenset({HOSTED, KERNEL_COST}))
    manager.run(program, target, annotations=facts)
    return Result(
        facts.get(SCHEDULE, program, None),
        facts.get(CRITICAL_PATH, program, None),
        facts.get(INTERVAL, program, None),
        facts.get(TIMELINE, program, None),
    )


@attrs.define(eq=False)
class Builder:
    """A launch graph and what its tasks take, grown together.

    Attributes:
        graph: The graph.
        host_s: Seconds of host tasks without a stated duration, NaN for others.
        seconds: Seconds of every task.

    """

    graph: LaunchGraph
    host_s: list[float] = attrs.field(factory=list[float], init=False)
    seconds: list[float] = attrs.field(factory=list[float], init=False)

    def host(
        self,
        thread: int,
        seconds: float,
        *,
        kind: TaskKind = TaskKind.HOST,
        after: tuple[int, ...] = (),
    ) -> int:
        """Append a host task."""
        self.host_s.append(seconds)
        self.seconds.append(seconds)
        return self.graph.task(kind, thread, after=after)

    def device(
        self,
        kind: TaskKind,
        stream: int,
        seconds: float = 0.0,
        *,
        issue: int = -1,
        kernel: int = -1,
        after: tuple[int, ...] = (),
        group: str = "",
    ) -> int:
        """Append a device task; without a kernel its duration is stated."""
        self.host_s.append(math.nan)
        self.seconds.append(seconds)
        event = kind in {TaskKind.RECORD, TaskKind.WAIT}
        return self.graph.task(
            kind,
            stream,
            kernel=kernel,
            issue=issue,
            after=after,
            group=group,
            stated_s=seconds if kernel < 0 and not event else math.nan,
        )

    def hosted(
        self, *, sigma_shared: float = 0.0, sigma_independent: float = 0.0
    ) -> HostedLaunches:
        """Return the graph with its host times."""
        verify_launches(self.graph)
        host_s = np.array(self.host_s, dtype=np.float64)
        return HostedLaunches(self.graph, host_s, sigma_shared, sigma_independent)


def estimate(
    seconds: Sequence[float],
    *,
    models: Sequence[str] = (),
    sigma_shared: float = 0.0,
    sigma_independent: float = 0.0,
) -> Estimate:
    """Return an estimate with the same uncertainty in each row."""
    rows = len(seconds)
    return Estimate(
        np.array(seconds, dtype=np.float64),
        np.full(rows, sigma_shared),
        np.full(rows, sigma_independent),
        models or ["roofline"] * rows,
        [Provenance.ANALYTIC] * rows,
    )


def kernel(number: int) -> Kernel:
    """Return a signature unlike those of other numbers."""
    sizes = Record({"m": number, "n": 1, "k": 1})
    return Kernel("gemm", "fp32", "fp32", sizes, NO_WORK)


def case_of(*builders: Builder, kernels_s: Sequence[float] = ()) -> Case:
    """Return what the builders built, without uncertainty."""
    return Case(
        tuple(builder.hosted() for builder in builders),
        tuple(estimate(kernels_s) for _ in builders),
        tuple(builder.seconds for builder in builders),
    )


def random_case(seed: int) -> Case:
    """Return up to three rank classes whose collectives may deadlock, rarely."""
    rng = random.Random(seed)
    kernels_s = [_seconds(rng) for _ in range(4)]
    cost = estimate(
        kernels_s,
        models=[rng.choice("ab") for _ in kernels_s],
        sigma_shared=rng.choice([0.0, 0.05, 0.3]),
        sigma_independent=rng.choice([0.0, 0.05, 0.3]),
    )
    count = rng.choice([1, 1, 2, 3])
    names: list[list[str]] = [[] for _ in range(count)]
    for number in range(rng.randint(0, 5)):
        for rank in sorted(rng.sample(range(count), rng.randint(1, count))):
            names[rank].append(f"c{number}")
    builders = [_RandomBuilder.make(rng, kernels_s, mine) for mine in names]
    sigmas = rng.choice([0.0, 0.1]), rng.choice([0.0, 0.2])
    return Case(
        tuple(
            b.hosted(sigma_shared=sigmas[0], sigma_independent=sigmas[1])
            for b in builders
        ),
        (cost,) * count,
        tuple(builder.seconds for builder in builders),
    )


def _seconds(rng: random.Random) -> float:
    """Return a duration; round ones make ties."""
    return rng.choice([0.0, 1e-6, 2e-6, 5e-6, rng.uniform(0, 2e-5)])


@attrs.define(eq=False)
class _RandomBuilder(Builder):
    """Appends random tasks."""

    rng: random.Random
    kernels_s: list[float]
    threads: list[int]
    streams: list[int]

    @classmethod
    def make(
        cls, rng: random.Random, kernels_s: list[float], collectives: list[str]
    ) -> _RandomBuilder:
        graph = LaunchGraph("random")
        threads = [graph.thread(f"t{i}") for i in range(rng.randint(1, 2))]
        streams = [graph.stream(f"s{i}", i % 2) for i in range(rng.randint(1, 3))]
        for number in range(len(kernels_s)):
            graph.intern(kernel(number))
        builder = cls(graph, rng, kernels_s, threads, streams)
        if rng.random() < 0.1:
            rng.shuffle(collectives)
        steps = [""] * rng.randint(0, 25)
        places = sorted(rng.choices(range(len(steps) + 1), k=len(collectives)))
        for place, name in zip(reversed(places), reversed(collectives), strict=True):
            steps.insert(place, name)
        for name in steps:
            builder.step(name)
        return builder

    def step(self, collective: str) -> None:
        """Append a collective, or anything else if that is empty."""
        rng = self.rng
        thread, stream = rng.choice(self.threads), rng.choice(self.streams)
        if collective:
            self._launch(thread, TaskKind.COLLECTIVE, stream, group=collective)
            return
        action = rng.choice("hhhkkkkmewwsjg")
        if action == "h":
            self.host(thread, _seconds(rng))
        elif action == "k":
            self._launch(thread, TaskKind.KERNEL, stream)
        elif action == "g":
            self._replay(thread, stream)
        elif action == "m":
            self._launch(thread, TaskKind.COPY, stream)
        elif action == "e":
            self._launch(thread, TaskKind.RECORD, stream)
        elif action == "w":
            self._launch(thread, TaskKind.WAIT, stream, after=self._some())
        elif action == "s":
            self.host(thread, _seconds(rng), kind=TaskKind.SYNC, after=self._some())
        else:
            self.host(thread, _seconds(rng), after=self._some())

    def _some(self) -> tuple[int, ...]:
        tasks = range(len(self.graph))
        return tuple(self.rng.sample(tasks, min(len(tasks), self.rng.randint(0, 3))))

    def _replay(self, thread: int, stream: int) -> None:
        """Append a CUDA graph: one call, several kernels on two streams."""
        call = self.host(thread, _seconds(self.rng), kind=TaskKind.CALL)
        for _ in range(self.rng.randint(1, 4)):
            place = self.rng.choice([stream, stream, *self.streams])
            self.device(TaskKind.KERNEL, place, _seconds(self.rng), issue=call)

    def _launch(
        self,
        thread: int,
        kind: TaskKind,
        stream: int,
        *,
        after: tuple[int, ...] = (),
        group: str = "",
    ) -> None:
        rng = self.rng
        issue = -1  # a trace may have lost the call
        if rng.random() < 0.9:
            issue = self.host(thread, _seconds(rng), kind=TaskKind.CALL)
        if kind in {TaskKind.RECORD, TaskKind.WAIT}:
            self.device(kind, stream, issue=issue, after=after)
            return
        number = rng.randrange(-1, len(self.kernels_s))
        seconds = self.kernels_s[number] if number >= 0 else _seconds(rng)
        self.device(kind, stream, seconds, issue=issue, kernel=number, group=group)
