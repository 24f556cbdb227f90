"""A schedule solved again for other durations, against `finish_s`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.passes.launch_graphs import Case, Result, analyse, random_case

from perfc.passes.timing import Network, Timeline, finish_s
from perfc.passes.timing.timeline import ScheduleError

CASES = range(120)


def solved() -> Iterator[tuple[Case, Result, random.Random]]:
    """Yield random cases that have a schedule; some of several ranks that meet."""
    for seed in CASES:
        case = random_case(seed)
        try:
            result = analyse(case)
        except ScheduleError:
            continue
        if len(result.schedule.duration_s):
            yield case, result, random.Random(seed)


def networks() -> Iterator[tuple[Timeline, list[float], random.Random]]:
    """Yield timelines, durations and a source of chance."""
    for _, result, chance in solved():
        yield result.timeline, list(result.schedule.duration_s), chance


def other(seconds: float, longest_s: float, chance: random.Random) -> float:
    """Return another duration: none, less, or much more."""
    return chance.choice([0.0, seconds * chance.random(), longest_s * chance.random()])


def test_some_cases_meet() -> None:
    """The random cases have schedules of one rank and of ranks that meet."""
    met = [any(group for _, group in t.stages) for t, _, _ in networks()]

    assert {True, False} == set(met)


def test_ends_are_those_of_the_schedule() -> None:
    """To the last bit, ranks that meet included."""
    for _, result, _ in solved():
        network = Network.of(result.timeline)
        ends_s = network.ends_s(network.spread(result.schedule.duration_s))

        assert list(result.schedule.end_s) == [ends_s[p] for p in network.places]


def test_ends_from_a_place_on_are_those_of_a_full_sweep() -> None:
    """What lies before the first change is taken as it was, to the last bit."""
    for timeline, seconds, chance in networks():
        network = Network.of(timeline)
        before = network.ends_s(network.spread(seconds))
        for _ in range(4):
            changed = seconds.copy()
            tasks = chance.sample(range(len(seconds)), min(3, len(seconds)))
            for task in tasks:
                changed[task] = other(seconds[task], max(before), chance)
            first = min(network.places[task] for task in tasks)
            spread = network.spread(changed)

            assert network.ends_s(spread) == network.ends_s(spread, before, first)
            assert finish_s(timeline, changed) == max(network.ends_s(spread))


def test_the_time_with_one_task_changed() -> None:
    """Heads, tails and ways around a task say what a full sweep says, to 1e-12."""
    for timeline, seconds, chance in networks():
        network = Network.of(timeline)
        spread = network.spread(seconds)
        ends_s = network.ends_s(spread)
        ways = network.ways(spread, ends_s)
        for task in range(len(seconds)):
            taken_s = other(seconds[task], max(ends_s), chance)
            changed = seconds.copy()
            changed[task] = taken_s
            found_s = ways.time_s(network.places[task], taken_s)

            assert finish_s(timeline, changed) == pytest.approx(found_s, rel=1e-12)


def test_the_time_with_neighbours_changed() -> None:
    """Ways through a stretch and around it say what a full sweep says, to 1e-12."""
    for timeline, seconds, chance in networks():
        network = Network.of(timeline)
        spread = network.spread(seconds)
        ends_s = network.ends_s(spread)
        ways = network.ways(spread, ends_s)
        for _ in range(6):
            first = chance.randint(1, len(network))
            places = range(first, min(len(network), first + chance.randint(0, 9)) + 1)
            stretch = network.stretch(places, ends_s, ways)
            changed = spread.copy()
            for place in places:
                if place in network.places:
                    changed[place] = other(spread[place], max(ends_s), chance)
            found_s = stretch.time_s(changed[places.start : places.stop])

            assert max(network.ends_s(changed)) == pytest.approx(found_s, rel=1e-12)
