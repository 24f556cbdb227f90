"""Schedules solved for many configurations at once, against one at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from tests.passes.launch_graphs import analyse, random_case

from perfc.passes.timing import Amount, Lag, Lags, Network, solve_columns
from perfc.passes.timing.blocks import BLOCK, reduced, rows_of, times_s
from perfc.passes.timing.timeline import ScheduleError

CASES = range(80)


def networks() -> Iterator[tuple[Network, list[float], np.random.Generator]]:
    """Yield random networks, seconds of their places, and a source of chance."""
    for seed in CASES:
        case = random_case(seed)
        try:
            result = analyse(case)
        except ScheduleError:
            continue
        network = Network.of(result.timeline)
        if len(network):
            seconds = network.spread(result.schedule.duration_s)
            yield network, seconds, np.random.default_rng(seed)


def varied(
    network: Network, seconds: list[float], chance: np.random.Generator, most: int
) -> tuple[list[Lag], list[np.ndarray], int]:
    """Let some places vary: return what places take, columns and their length."""
    tasks = sorted({*network.places})
    chosen = chance.choice(tasks, min(most, len(tasks)), replace=False).tolist()
    count = 7
    made: list[Lag] = [*seconds]
    columns = [chance.random(count) * max(seconds) for _ in chosen]
    for number, place in enumerate(chosen):
        made[place] = Amount(2.0, (number,))
    return made, columns, count


def one(seconds: list[Lag], columns: list[np.ndarray], at: int) -> list[float]:
    """Return what places take in one configuration."""
    return [
        s.scale * float(columns[s.columns[0]][at]) if isinstance(s, Amount) else s
        for s in seconds
    ]


def test_all_places_are_solved_to_the_last_bit() -> None:
    """Sums are those of the schedule of one configuration, in the same order."""
    for network, seconds, chance in networks():
        made, columns, count = varied(network, seconds, chance, len(seconds))
        rows = rows_of(network, made, Lags({}, network.latency_s))
        found = times_s(rows, columns, count)

        for at in range(count):
            assert max(network.ends_s(one(made, columns, at))) == found[at]


def test_ways_between_the_few_that_vary() -> None:
    """Without the places that do not vary, times are the same to 1e-12."""
    for network, seconds, chance in networks():
        for most in (0, 1, 4):
            made, columns, count = varied(network, seconds, chance, most)
            found = times_s(reduced(network, made), columns, count)

            for at in range(count):
                expected = max(network.ends_s(one(made, columns, at)))
                assert expected == pytest.approx(found[at], rel=1e-12)


def test_gaps_and_latencies_vary() -> None:
    """A column may be the seconds between two tasks."""
    for network, seconds, chance in networks():
        count = 3
        gaps = [place for place, gap_s in enumerate(network.gap_s, 1) if gap_s]
        columns = [chance.random(count) * 1e-5, chance.random(count) * 1e-5]
        amounts: dict[int, Lag] = dict.fromkeys(gaps, Amount(1.0, (0,)))
        lags = Lags(amounts, Amount(1.0, (1,)))
        found = solve_columns(network, seconds, columns, count, lags)
        for at in range(count):
            gap_s = [float(columns[0][at]) if g else 0.0 for g in network.gap_s]
            latency_s = float(columns[1][at])
            other = Network(
                network.places,
                network.previous,
                gap_s,
                network.issue,
                latency_s,
                network.after,
            )
            assert max(other.ends_s(seconds)) == found[at]


def test_more_configurations_than_a_block_has() -> None:
    """Blocks are put one after the other, the last one shorter."""
    network, seconds, chance = next(networks())
    count = 2 * BLOCK + 3
    place = network.places[0]
    made: list[Lag] = [*seconds]
    made[place] = Amount(1.0, (0,))
    column = chance.random(count)
    found = solve_columns(network, made, [column], count)

    for at in (
        0,
        1,
        BLOCK - 1,
        BLOCK,
        2 * BLOCK + 2,
        random.Random(1).randrange(count),
    ):
        expected = max(network.ends_s(one(made, [column], at)))
        assert expected == pytest.approx(found[at], rel=1e-12)
