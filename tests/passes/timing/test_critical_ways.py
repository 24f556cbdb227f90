"""All critical paths of a schedule: what each of them has, and how the time follows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from tests.passes.timing.test_network import networks

from perfc.passes.timing import LAGS, CriticalWays, Network, TimeConstants, link_graphs

STEP = 1e-7
"""Share that durations change by: less than most paths differ by."""
ROUNDED = 1e-6
"""How far quotients of differences are off."""


def solved() -> Iterator[tuple[Network, list[float], CriticalWays, random.Random]]:
    """Yield networks with their critical paths."""
    for timeline, durations_s, chance in networks():
        network = Network.of(timeline)
        seconds = network.spread(durations_s)
        kinds = [0] * (len(network) + 1)
        numbered = link_graphs(timeline.graphs, TimeConstants(1.0, 2.0, 0.0))
        for task, kind in enumerate(numbered.gap_s):
            kinds[network.arrival(task)] = int(kind)
        ends_s = network.ends_s(seconds)
        yield network, seconds, CriticalWays.of(network, seconds, ends_s, kinds), chance


def lags_s(network: Network) -> list[float]:
    """Return the seconds of each kind of lag."""
    gaps = {gap for gap in network.gap_s if gap}
    return [0.0, max(gaps, default=0.0), min(gaps, default=0.0), network.latency_s]


def test_some_cases_have_several_paths() -> None:
    """The random cases have one path, and several; ranks that meet, and one rank."""
    found = {(ways.is_one, bool(n.arrivals)) for n, _, ways, _ in solved()}

    assert {(one, met) for one in (True, False) for met in (True, False)} == found


def test_every_path_is_as_long_as_the_step() -> None:
    """Durations and lags of the longest and of the shortest of them are the time."""
    for network, seconds, ways, _ in solved():
        kinds = {gap for gap in network.gap_s if gap}
        if len(kinds) == 1:  # it is not told which kind it is
            continue
        own = np.array(seconds)[ways.places][:, None]
        most, least = ways.spans(own, np.array(lags_s(network))[:, None])

        assert ways.time_s == pytest.approx(most[0], rel=1e-12)
        assert ways.time_s == pytest.approx(least[0], rel=1e-12)


def test_slopes_are_those_of_the_schedule() -> None:
    """Longer, a group of tasks costs the most of it on a path; shorter, the least."""
    sides: set[bool] = set()
    for network, seconds, ways, chance in solved():
        if not ways.time_s:
            continue
        group = [chance.random() < 0.4 for _ in seconds]
        share = np.array(
            [s if of else 0.0 for s, of in zip(seconds, group, strict=True)]
        )
        own = share[ways.places][:, None]
        most, least = ways.spans(own, np.zeros((LAGS, 1)))
        sides.add(bool(most[0] > least[0]))
        for step, expected in ((STEP, most[0]), (-STEP, least[0])):
            other = (np.array(seconds) + step * share).tolist()
            found = (max(network.ends_s(other)) - ways.time_s) / step

            assert found == pytest.approx(expected, abs=ROUNDED * ways.time_s)
    assert {True, False} == sides


def test_labels_are_groups() -> None:
    """Many groups at once, in more than one chunk, are each what it is alone."""
    for network, seconds, ways, chance in solved():
        count = 600
        labels = np.array([chance.randrange(-1, count) for _ in ways.places], dtype=int)
        own = np.array(seconds)[ways.places]
        most, least = ways.spans_of_labels(labels, own, count)
        alone = [
            ways.spans(np.where(labels == n, own, 0.0)[:, None], np.zeros((LAGS, 1)))
            for n in set(labels.tolist()) - {-1}
        ]
        listed = sorted(set(labels.tolist()) - {-1})
        for number, (upper, lower) in zip(
            set(labels.tolist()) - {-1}, alone, strict=True
        ):
            assert (upper[0], lower[0]) == pytest.approx((most[number], least[number]))
        assert {0.0} >= {*np.delete(most, listed).tolist()}
        assert len(network) >= len(own)


def test_a_step_of_no_time_has_no_path() -> None:
    """Nothing takes time, nothing has a slope."""
    network = Network([1], [0], [0.0], [0], 0.0, [()])
    ways = CriticalWays.of(network, [0.0, 0.0], [0.0, 0.0], [0, 0])

    most, least = ways.spans(np.zeros((0, 2)), np.zeros((LAGS, 2)))

    assert [0.0, 0.0] == most.tolist() == least.tolist()
