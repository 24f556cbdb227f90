"""Placement: against all splits there are, and the laws of networks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import load_target
from perfc.planning.networks import (
    Adaptive,
    Compression,
    Crossing,
    Cutter,
    LayerPrices,
    Link,
    Network,
    NetworkNode,
    Placed,
    Placer,
    Problem,
    Unit,
    clustered,
    even,
    neighbours,
)

_T4 = load_target("t4")


def _problem(
    seed: int, layers: int, units: int, *, microbatches: int = 4, limit: float = 1e12
) -> Problem:
    """Return a random problem: unequal layers, GPUs and links."""
    chance = random.Random(seed)
    work = [chance.uniform(0.5, 1.5) for _ in range(layers)]
    nodes = [NetworkNode(f"n{n}", _T4) for n in range(units)]
    links = {
        (a.name, b.name): Link(chance.choice([1e6, 1e7, 1e8]), chance.random() / 100)
        for a in nodes
        for b in nodes
        if a is not b
    }
    made = [
        Unit(
            node=n,
            gpus=1,
            prices=_prices(np.array(work) * chance.choice([0.5, 1.0, 3.0])),
            limit_bytes=limit,
        )
        for n in range(units)
    ]
    sent = [0.0, *(chance.choice([1e5, 1e6, 4e6]) for _ in range(layers - 1)), 0.0]
    return Problem(
        network=Network(nodes, links),
        units=made,
        sent_bytes=np.array(sent),
        microbatches=microbatches,
        schedule="gpipe",
    )


def _adaptive(problem: Problem, ratio: float) -> Problem:
    """Return the problem with links that adapt, up to a ratio."""
    whole, none = problem.sent_bytes, np.zeros_like(problem.sent_bytes)
    compression = Compression("topk", ratio, adaptive=True)
    crossing = Crossing({4.0: whole}, none, none)
    return attrs.evolve(
        _uniform(problem, ratio), adaptive=Adaptive(compression, crossing)
    )


def _uniform(problem: Problem, ratio: float) -> Problem:
    share = Compression("topk", ratio).share(4)
    sent_bytes = problem.sent_bytes * share
    return attrs.evolve(problem, sent_bytes=sent_bytes, ratio=ratio)


def _kept(problem: Problem, placed: Placed, whole_bytes: float) -> float:
    """Return the bytes of values that all links of a split send."""
    shares = [Compression("topk", r).share(4) for r in problem.ratios(placed)]
    return sum(shares) * whole_bytes


def _prices(work: np.ndarray) -> LayerPrices:
    none, cuts = np.zeros(len(work)), np.zeros(len(work) + 1)
    return LayerPrices(
        forward_s=work,
        backward_s=work * 2,
        update_s=work / 10,
        lasting_bytes=none + 1e9,
        saved_bytes=none + 1e8,
        passing_bytes=none,
        gradient_bytes=none + 1e9,
        encode_s=cuts,
        decode_s=cuts,
    )


def _all(problem: Problem) -> Iterator[Placed]:
    """Yield every split on every order of all units."""
    units, layers = len(problem.units), problem.layers
    for order in permutations(range(units)):
        for cuts in combinations(range(1, layers), units - 1):
            yield Placed(order, (0, *cuts, layers))


@pytest.mark.parametrize("seed", range(12))
def test_near_the_best_of_all(seed: int) -> None:
    """Of all orders and cuts of 7 layers on 4 GPUs none is much faster."""
    problem = _problem(seed, 7, 4)

    found = Placer(problem).place()

    assert found is not None
    best_s = min(problem.step_s(placed) for placed in _all(problem))
    assert problem.step_s(found) <= best_s * 1.25


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 12))
def test_no_single_layer_is_better_elsewhere(
    seed: int, units: int, microbatches: int
) -> None:
    """Moving a layer to the stage before or behind makes no step shorter."""
    problem = _problem(seed, 12, units, microbatches=microbatches)

    found = Placer(problem).place()

    assert found is not None
    assert sorted(found.units) == list(range(units))
    least_s = problem.step_s(found) * (1 - 1e-6)
    assert all(problem.step_s(moved) >= least_s for moved in neighbours(found))


@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([2.5, 20.0, 100.0]))
def test_nor_is_it_where_ratios_adapt(seed: int, units: int, ratio: float) -> None:
    """Each move has ratios of its own, and the time that a step has with them."""
    problem = _adaptive(_problem(seed, 12, units), ratio)

    found = Placer(problem).place()

    assert found is not None
    least_s = problem.step_s(found) * (1 - 1e-6)
    assert all(problem.step_s(moved) >= least_s for moved in neighbours(found))


def _over_slow_links(seed: int, microbatches: int) -> tuple[Problem, Placed]:
    """Return GPUs whose links take longer than they, equal tensors, and a split."""
    problem = _problem(seed, 12, 6, microbatches=microbatches)
    links = {k: Link(v.bytes_per_s / 1e3) for k, v in problem.network.links.items()}
    network = Network(problem.network.nodes, links)
    sent = np.array([0.0, *[1e6] * 11, 0.0])
    problem = attrs.evolve(problem, network=network, sent_bytes=sent)
    return problem, even(problem, clustered(problem))


@given(st.integers(0, 10**6), st.sampled_from([4.0, 30.0, 200.0]))
def test_adapting_keeps_more_in_the_same_time(seed: int, ratio: float) -> None:
    """The slowest link is as slow as it was, and the others keep what that leaves."""
    problem, placed = _over_slow_links(seed, 4000)
    adaptive, uniform = _adaptive(problem, ratio), _uniform(problem, ratio)

    assert adaptive.step_s(placed) == pytest.approx(uniform.step_s(placed), rel=0.01)
    assert _kept(adaptive, placed, 1e6) >= _kept(uniform, placed, 1e6)


@given(st.integers(0, 10**6), st.sampled_from([4.0, 30.0, 200.0]), st.integers(1, 64))
def test_one_ratio_in_the_same_time_keeps_no_more(
    seed: int, ratio: float, microbatches: int
) -> None:
    """Of any number of microbatches: one ratio, lowered until steps are as long."""
    problem, placed = _over_slow_links(seed, microbatches)
    adaptive = _adaptive(problem, ratio)
    taken_s = adaptive.step_s(placed)
    low, high = 2.0, ratio
    for _ in range(60):
        middle = (low + high) / 2
        if _uniform(problem, middle).step_s(placed) > taken_s:
            low = middle
        else:
            high = middle

    kept = _kept(_uniform(problem, high), placed, 1e6)
    assert _kept(adaptive, placed, 1e6) >= kept * (1 - 0.01)


def test_links_that_differ_by_direction_adapt_to_both() -> None:
    """Of what a link needs for activations and for gradients the larger ratio holds."""
    problem = _problem(0, 8, 4)
    names = [node.name for node in problem.network.nodes]
    links = {(a, b): Link(1e8) for a in names for b in names if a != b}
    links[names[0], names[1]] = Link(1e6)
    links[names[2], names[1]] = Link(1e5)
    sent = np.array([0.0, *[1e6] * 7, 0.0])
    slow = attrs.evolve(
        problem, network=Network(problem.network.nodes, links), sent_bytes=sent
    )
    placed = Placed((0, 1, 2, 3), (0, 2, 4, 6, 8))

    assert _adaptive(slow, 100.0).ratios(placed) == pytest.approx([100, 100, 1])


@given(st.integers(0, 10**6))
def test_no_slower_than_an_even_split_of_clusters(seed: int) -> None:
    """What is compared with is among what could be."""
    problem = _problem(seed, 12, 6)

    found = Placer(problem).place()

    assert found is not None
    base_s = problem.step_s(even(problem, clustered(problem)))
    assert problem.step_s(found) <= base_s * (1 + 1e-9)


def test_a_faster_network_is_no_slower() -> None:
    """For the same split, with all links twice as fast."""
    problem = _problem(3, 10, 5)
    links = problem.network.links
    fast = {k: Link(v.bytes_per_s * 2, v.latency_s / 2) for k, v in links.items()}
    other = attrs.evolve(problem, network=Network(problem.network.nodes, fast))
    found = Placer(problem).place()

    assert found is not None
    assert other.step_s(found) <= problem.step_s(found)


def test_fast_links_stay_together() -> None:
    """Two clusters that a slow link joins are each in one piece."""
    nodes = [NetworkNode(f"n{n}", _T4) for n in range(6)]
    links = {
        (a.name, b.name): Link(1e9 if i % 2 == j % 2 else 1e6)
        for i, a in enumerate(nodes)
        for j, b in enumerate(nodes)
        if i != j
    }
    problem = attrs.evolve(_problem(0, 6, 6), network=Network(nodes, links))

    order = [unit % 2 for unit in clustered(problem)]

    assert order in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])


@pytest.mark.parametrize("seed", range(4))
def test_fewest_gpus_that_end_in_time(seed: int) -> None:
    """The time that the fastest split takes is met, and so is a longer one by fewer."""
    problem = _problem(seed, 8, 5, microbatches=16)
    fast = Placer(problem).fastest()
    assert fast is not None
    fast_s = problem.step_s(fast)
    alone_s = min(problem.step_s(Placed((n,), (0, 8))) for n in range(5))

    met = Placer(problem).fewest(fast_s * (1 + 1e-9))
    alone = Placer(problem).fewest(alone_s * (1 + 1e-9))

    assert met is not None
    assert problem.step_s(met) <= fast_s * (1 + 1e-6)
    assert alone is not None
    assert len(alone.units) == 1
    assert Placer(problem).fewest(fast_s / 100) is None


def test_what_does_not_fit_is_no_split() -> None:
    """A layer needs 1 GB, and 0.1 GB for each microbatch that it keeps."""
    assert Placer(_problem(0, 8, 2, limit=3e9)).place() is None
    found = Placer(_problem(0, 8, 2, limit=6e9)).place()
    assert found is not None
    assert found.ends == (0, 4, 8)


def test_more_units_than_layers() -> None:
    """Some have none."""
    found = Placer(_problem(0, 3, 6)).place()

    assert found is not None
    assert len(found.units) <= 3
    assert found.ends[-1] == 3


def test_replicas_add_up_their_gradients() -> None:
    """A ring of 4 GPUs sends three quarters of 8 GB twice, in 6 turns."""
    problem = _problem(0, 8, 1)
    unit = attrs.evolve(problem.units[0], gpus=4)
    links = {("n0", "n0"): Link(1e9, 0.5)}
    shared = attrs.evolve(
        problem, units=[unit], network=Network(problem.network.nodes, links)
    )
    placed = Placed((0,), (0, 8))

    extra_s = shared.step_s(placed) - problem.step_s(placed)

    assert extra_s == pytest.approx(2 * 3 / 4 * 8 + 6 * 0.5)


def test_units_of_several_gpus_count_as_such() -> None:
    """A unit of 4 GPUs is no answer with fewer, and one with 4."""
    problem = _problem(0, 8, 1)
    shared = attrs.evolve(problem, units=[attrs.evolve(problem.units[0], gpus=4)])

    assert not list(Cutter(shared, skips=True).candidates([0], 3))
    assert list(Cutter(shared, skips=True).candidates([0], 4))


def test_work_of_placing_100_layers_on_48_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps that are priced and orders that are cut stay within bounds."""
    done = {"step_s": 0, "run": 0}

    def count(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def counted(*args: Any, **options: Any) -> Any:
            done[name] += 1
            return plain(*args, **options)

        monkeypatch.setattr(owner, name, counted)

    count(Problem, "step_s")
    count(Cutter, "run")
    problem = _adaptive(_problem(5, 100, 48, microbatches=8), 20.0)

    assert Placer(problem).place() is not None
    assert done["run"] <= 500
    assert done["step_s"] <= 2_000
