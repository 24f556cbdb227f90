"""Times under changes of ops: as by solving the whole timeline for each change."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from tests.passes.launch_graphs import TARGET, Case, random_case

from perfc.ir import Program
from perfc.ir.annotations import Annotations
from perfc.ir.program import RankClass
from perfc.passes import KERNEL_COST, PassManager
from perfc.passes.facts import HOSTED, SCHEDULE, Schedule
from perfc.passes.timing import StreamSchedule
from perfc.passes.timing.retiming import Change
from perfc.passes.timing.timeline import TIMELINE, ScheduleError, Timeline
from perfc.passes.what_if import op_times
from perfc.passes.what_if.op_times import Asked, solve_in_batches, times_of_ops


def _scheduled(case: Case) -> tuple[Timeline, Schedule]:
    """Schedule the graphs of all ranks."""
    classes = tuple(RankClass((i,), launches=g) for i, g in enumerate(case.graphs))
    program, facts = Program("random", classes), Annotations()
    facts.set(HOSTED, program, case.hosted, None)
    facts.set(KERNEL_COST, program, case.costs, None)
    manager = PassManager(
        (StreamSchedule(contention=False),), given=frozenset({HOSTED, KERNEL_COST})
    )
    manager.run(program, TARGET, annotations=facts)
    return facts.get(TIMELINE, program, None), facts.get(SCHEDULE, program, None)


def _cases(seeds: range) -> Iterator[tuple[Timeline, Schedule, random.Random]]:
    for seed in seeds:
        try:
            timeline, schedule = _scheduled(random_case(seed))
        except ScheduleError:  # it deadlocks
            continue
        if len(timeline):
            yield timeline, schedule, random.Random(seed)


def _change(tasks: Sequence[int], schedule: Schedule, chance: random.Random) -> Change:
    """Let some tasks take less."""
    changed = [task for task in tasks if chance.random() < 0.8]
    return {task: schedule.duration_s[task] * chance.random() for task in changed}


def _asked(
    timeline: Timeline, schedule: Schedule, chance: random.Random, *, spread: bool
) -> list[Asked]:
    """Ask for ops that lie side by side, within each other, or anywhere."""
    found: list[Asked] = []
    for _ in range(12):
        first = chance.randrange(len(timeline))
        near = range(first, min(first + 1 + chance.randrange(6), len(timeline)))
        from_ = range(len(timeline)) if spread else near
        tasks = sorted(chance.sample(from_, 1 + chance.randrange(len(near))))
        found.append((tasks, [_change(tasks, schedule, chance) for _ in range(3)]))
    return found


@pytest.mark.parametrize("spread", [False, True])
def test_as_by_solving_it_all(*, spread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether ranks meet or not, and however the tasks of ops lie among others."""
    monkeypatch.setattr(op_times, "_SHORT", 6 if spread else 64)
    checked = met = 0
    for timeline, schedule, chance in _cases(range(80)):
        asked = _asked(timeline, schedule, chance, spread=spread)
        wanted = [solve_in_batches(timeline, schedule, c) for _, c in asked]
        found = times_of_ops(timeline, schedule, asked)
        for one, other in zip(wanted, found, strict=True):
            assert one == pytest.approx(other, rel=1e-12, abs=1e-18)
            checked += 1
        met += any(len(group) > 1 for _, group in timeline.stages)
    assert checked > 400
    assert met > 10


def test_ops_whose_tasks_lie_together_solve_nothing_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither ops that overlap, nor ranks that meet, make every op cost a sweep."""

    def never(*_: object) -> list[float]:
        msg = "the whole timeline is solved for one op"
        raise AssertionError(msg)

    monkeypatch.setattr(op_times, "solve_many", never)
    monkeypatch.setattr(op_times, "_SHORT", 10_000)
    solved = 0
    for timeline, schedule, chance in _cases(range(40)):
        asked = _asked(timeline, schedule, chance, spread=False)
        solved += len(times_of_ops(timeline, schedule, asked))

    assert solved > 100
