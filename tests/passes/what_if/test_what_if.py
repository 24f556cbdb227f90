"""what-if: every answer is the schedule with those durations changed."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import pairwise

import pytest
from tests.passes.launch_graphs import (
    GAP_S,
    GRAPH_GAP_S,
    LATENCY_S,
    TARGET,
    Case,
    random_case,
)
from tests.passes.simulator import DeadlockError, Simulator

import perfc
from perfc.ir import LaunchGraph, LaunchOp, Program, TaskKind
from perfc.ir.annotations import Annotations
from perfc.ir.launch import BUSY_KINDS
from perfc.ir.program import RankClass
from perfc.passes import KERNEL_COST, PassManager
from perfc.passes.facts import HOSTED
from perfc.passes.timing import CriticalPath, StreamSchedule
from perfc.passes.what_if import WHAT_IF, OpSaving, Savings, WhatIf

ALL = 10**6
"""More sites than any graph has."""
Where = tuple[int, int]
"""Rank class, and index of a task or an op."""
Change = Callable[[Where], float | None]
"""What a task takes instead; None for what it takes."""
HOST = {TaskKind.HOST, TaskKind.CALL}


def with_ops(case: Case, seed: int) -> Case:
    """Give the tasks ops: in runs, as lowering does, or anyhow."""
    rng = random.Random(seed)
    for graph in case.graphs:
        count = len(graph)
        places = [0, *sorted(rng.sample(range(count + 1), min(4, count))), count]
        if rng.random() < 0.3:
            graph.op[:] = [rng.randrange(5) for _ in range(count)]
        else:
            for op, (low, high) in enumerate(pairwise(places)):
                graph.op[low:high] = [op] * (high - low)
        for _ in range(6):
            graph.add_op(LaunchOp(rng.choice(["aten::a", "aten::b"])))
    return case


def savings_of(case: Case, sites: int = ALL) -> Savings:
    """Run the timing passes and what-if."""
    classes = tuple(RankClass((i,), launches=g) for i, g in enumerate(case.graphs))
    program = Program("random", classes)
    facts = Annotations()
    facts.set(HOSTED, program, case.hosted, None)
    facts.set(KERNEL_COST, program, case.costs, None)
    passes = (StreamSchedule(contention=False), CriticalPath(), WhatIf(sites=sites))
    manager = PassManager(passes, given=frozenset({HOSTED, KERNEL_COST}))
    manager.run(program, TARGET, annotations=facts)
    return facts.get(WHAT_IF, program, None)


def saved_s(
    case: Case, time_s: float, change: Change, mine: Callable[[Where], bool]
) -> object:
    """Return, to compare to 1e-9, what the simulator says that a change saves."""
    seconds: list[list[float]] = []
    for rank, column in enumerate(case.seconds):
        tasks = [(rank, index) for index in range(len(column))]
        changed = [change(task) if mine(task) else None for task in tasks]
        pairs = zip(changed, column, strict=True)
        seconds.append([old if new is None else new for new, old in pairs])
    simulator = Simulator(case.graphs, seconds, LATENCY_S, GAP_S, GRAPH_GAP_S)
    return pytest.approx(time_s - simulator.run(), rel=1e-9, abs=1e-15)


def of_ops(case: Case, *ops: Where) -> Callable[[Where], bool]:
    """Whether a task belongs to one of the ops."""
    return lambda task: (task[0], case.graphs[task[0]].op[task[1]]) in ops


def changes(case: Case) -> tuple[Change, Change, Change]:
    """Device tasks twice as fast, kernels at their bound, host twice as fast."""

    def twice(task: Where) -> float | None:
        rank, index = task
        busy = case.graphs[rank].kind[index] in BUSY_KINDS
        return case.seconds[rank][index] / 2 if busy else None

    def bound(task: Where) -> float | None:
        rank, index = task  # kernels of these graphs have no work
        return 0.0 if case.graphs[rank].kernel[index] >= 0 else None

    def host(task: Where) -> float | None:
        rank, index = task
        on_host = case.graphs[rank].kind[index] in HOST
        return case.seconds[rank][index] / 2 if on_host else None

    return twice, bound, host


def cases(seeds: range) -> Iterator[tuple[Case, float]]:
    """Yield cases that do not deadlock, and their times."""
    for seed in seeds:
        case = with_ops(random_case(seed), seed)
        simulator = Simulator(case.graphs, case.seconds, LATENCY_S, GAP_S, GRAPH_GAP_S)
        try:
            yield case, simulator.run()
        except DeadlockError:
            continue


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_an_op_saves_what_the_simulator_says(first: int) -> None:
    """And one that is not listed saves nothing."""
    saving = 0
    for case, time_s in cases(range(first, first + 40)):
        found = {(s.rank, s.op): s for s in savings_of(case).ops}
        saving += len(found)
        for rank, graph in enumerate(case.graphs):
            for op in set(graph.op):
                s = found.get((rank, op), OpSaving(rank, op, 0.0, 0.0, 0.0))
                answers = (s.twice_s, s.bound_s, s.host_twice_s)
                mine = of_ops(case, (rank, op))
                for change, answer in zip(changes(case), answers, strict=True):
                    assert saved_s(case, time_s, change, mine) == answer
    assert saving > 40


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_a_site_saves_what_the_simulator_says(first: int) -> None:
    """All its ops together; the best comes first."""
    several = 0
    for case, time_s in cases(range(first, first + 40)):
        sites = savings_of(case).sites
        several += any(len(site.ops) > 1 for site in sites)
        twice, bound, _ = changes(case)
        for site in sites:
            mine = of_ops(case, *site.ops)
            assert saved_s(case, time_s, twice, mine) == site.twice_s
            assert saved_s(case, time_s, bound, mine) == site.bound_s
        reachable = [site.reachable_s for site in sites]
        assert sorted(reachable, reverse=True) == reachable
    assert several > 0


def test_few_sites_are_the_best_ones() -> None:
    """Stopping early leaves out none that could save more."""
    for case, _ in cases(range(60)):
        best = [site.reachable_s for site in savings_of(case).sites[:2]]

        assert best == [site.reachable_s for site in savings_of(case, sites=2).sites]


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_the_host_saves_what_the_simulator_says(first: int) -> None:
    """Calls (T4), other host times, and all of them."""
    classes = {"T4": {TaskKind.CALL}, "other": {TaskKind.HOST}, "all": HOST}
    for case, time_s in cases(range(first, first + 40)):
        graphs = case.graphs
        found = {s.detail: (s.twice_s, s.free_s) for s in savings_of(case).host}
        for detail, kinds in classes.items():
            twice_s, free_s = found.get(detail, (0.0, 0.0))
            mine = functools.partial(of_kinds, graphs, kinds)
            assert saved_s(case, time_s, changes(case)[2], mine) == twice_s
            assert saved_s(case, time_s, lambda _: 0.0, mine) == free_s


def of_kinds(
    graphs: Sequence[LaunchGraph], kinds: Container[TaskKind], task: Where
) -> bool:
    """Whether a task is of one of the kinds."""
    return graphs[task[0]].kind[task[1]] in kinds


def test_what_hides_behind_the_host_saves_nothing() -> None:
    """With one sample the device waits for the host, until its last kernels."""
    report = perfc.analyze(perfc.load("dlrm-ddp", batch=1), "h100")
    nodes = report.what_if["nodes"]
    hidden = [n for n in nodes if not n["saved_2x_us"] and not n["saved_at_bound_us"]]

    assert len(hidden) > 0.8 * len(nodes)
    assert all(node["saved_host_2x_us"] > 0 for node in hidden)
