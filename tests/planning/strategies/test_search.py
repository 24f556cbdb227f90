"""The search: as good as pricing everything, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.listeners import Heard

from perfc.ir.support import UnsupportedModelError, told_to
from perfc.planning.strategies import (
    METHODS,
    OBJECTIVES,
    Findings,
    Objective,
    Refused,
    Search,
    Strategy,
    StrategyBound,
    StrategyPrice,
)

LIMIT = 100.0


@attrs.define(eq=False)
class Listed:
    """Prices that a list says, and bounds below them; a price of 0 s is refused."""

    prices: Mapping[Strategy, tuple[float, float]]
    slack: Mapping[Strategy, tuple[float, float]]
    limit_bytes: float = LIMIT
    asked: list[Strategy] = attrs.field(factory=list[Strategy])
    stop_after: int | None = None

    def bound(self, strategy: Strategy) -> StrategyBound:
        """Return a part of the price."""
        (step_s, peak), (time, memory) = self.prices[strategy], self.slack[strategy]
        self._check(strategy)
        return StrategyBound(samples=8, step_s=step_s * time, peak_bytes=peak * memory)

    def price(self, strategy: Strategy) -> StrategyPrice:
        """Return the price, and note that it was asked for."""
        if len(self.asked) == self.stop_after:
            raise KeyboardInterrupt
        self.asked.append(strategy)
        self._check(strategy)
        step_s, peak_bytes = self.prices[strategy]
        return StrategyPrice(
            strategy=strategy,
            samples=8,
            step_s=step_s,
            low_s=step_s,
            high_s=step_s,
            exposed_s=0.0,
            bubble_s=0.0,
            shares={"host": 1.0},
            parameters_bytes=peak_bytes,
            peak_bytes=peak_bytes,
            limit_bytes=self.limit_bytes,
        )

    def _check(self, strategy: Strategy) -> None:
        if not self.prices[strategy][0]:
            msg = f"{strategy} does not work"
            raise UnsupportedModelError(msg)


_STRATEGIES = [
    Strategy(replicas=replicas, tensor=tensor, stages=stages, data=data)
    for replicas in (1, 2, 4)
    for tensor in (1, 2)
    for stages in (1, 4)
    for data in ("dp", "fsdp")
]
_SHARE = st.floats(0, 1)
_PRICE = st.tuples(st.one_of(st.just(0.0), st.floats(0.1, 9)), st.floats(1, 2 * LIMIT))


@st.composite
def _listed(draw: st.DrawFn) -> Listed:
    each = draw(
        st.lists(
            st.tuples(_PRICE, st.tuples(_SHARE, _SHARE)),
            min_size=len(_STRATEGIES),
            max_size=len(_STRATEGIES),
        )
    )
    pairs = list(zip(_STRATEGIES, each, strict=True))
    return Listed({s: price for s, (price, _) in pairs}, {s: w for s, (_, w) in pairs})


def _found(listed: Listed, method: str, objective: str) -> Findings:
    return Search(listed, Objective(objective), method).run((), _STRATEGIES)


@given(_listed(), st.sampled_from(OBJECTIVES))
def test_the_fast_search_finds_the_best(listed: Listed, objective: str) -> None:
    """What it leaves out is not better, whatever the bounds are worth."""
    fast, every = (_found(listed, method, objective) for method in METHODS)

    if every.best is None:
        assert fast.best is None
    else:
        assert fast.best is not None
        assert every.best.strategy == fast.best.strategy


@given(_listed(), st.sampled_from(METHODS), st.sampled_from(OBJECTIVES))
def test_every_strategy_is_accounted_for(
    listed: Listed, method: str, objective: str
) -> None:
    """Priced, left with a reason, or refused: each once."""
    found = _found(listed, method, objective)

    names = [price.strategy for price in found.priced]
    names += [left.strategy for left in found.left]
    names += [refused.strategy for refused in found.refused]
    assert sorted(map(str, _STRATEGIES)) == sorted(map(str, names))
    refused = {str(one.strategy) for one in found.refused}
    assert {str(s) for s in _STRATEGIES if not listed.prices[s][0]} == refused


def _even(**others: object) -> Listed:
    """All take a second and the same memory; bounds are prices."""
    prices = dict.fromkeys(_STRATEGIES, (1.0, 50.0))
    made = Listed(prices, dict.fromkeys(_STRATEGIES, (1.0, 1.0)))
    for name, value in others.items():
        setattr(made, name, value)
    return made


def test_what_is_slower_is_left() -> None:
    """One of each family is priced all the same."""
    best, *others = _STRATEGIES
    listed = _even(prices={best: (1.0, 50.0), **dict.fromkeys(others, (2.0, 50.0))})

    found = _found(listed, "fast", "throughput")

    assert best == listed.asked[0]
    families = [strategy.family for strategy in listed.asked]
    assert len(set(families)) == len(families)
    assert {one.family for one in _STRATEGIES} == set(families)
    assert {"cannot be better than the best"} == {left.reason for left in found.left}


def test_what_does_not_fit_is_left() -> None:
    """A bound of the memory is enough to know; asked for it is priced."""
    listed = _even(limit_bytes=10.0)
    asked = _STRATEGIES[3]

    found = Search(listed, Objective()).run((asked,), _STRATEGIES)

    assert [asked] == listed.asked
    assert 40 == found.priced[0].missing_bytes
    assert {"does not fit"} == {left.reason for left in found.left}
    assert found.best is None


def test_a_limit_ends_a_search() -> None:
    """So many are priced, and the others named."""
    listed = _even()

    found = Search(listed, Objective(), "all", limit=3).run((), _STRATEGIES)

    assert 3 == len(found.priced)
    assert len(_STRATEGIES) - 3 == len(found.left)
    assert {"--limit is reached"} == {left.reason for left in found.left}


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_keeps_what_there_is(method: str) -> None:
    """What has been priced, and what has not."""
    listed = _even(stop_after=2)

    found = Search(listed, Objective(), method).run((), _STRATEGIES)

    assert found.interrupted
    assert 2 == len(found.priced)
    assert len(_STRATEGIES) == len(found.priced) + len(found.left)
    assert "interrupted" == found.left[-1].reason


def test_what_is_given_twice_is_priced_once() -> None:
    """Refusals of the space are kept, once."""
    listed, refused = _even(), Refused(Strategy(replicas=3), "of no use")
    one, two, *_ = _STRATEGIES

    found = Search(listed, Objective(), "all").run(
        (one, one, refused), (refused, two, one)
    )

    assert [one, two] == listed.asked
    assert [refused] == found.refused


def test_progress_is_told() -> None:
    """Whoever listens hears of bounds, then of prices, of those that are left."""
    heard = Heard()

    with told_to(heard):
        Search(_even(), Objective()).run((), _STRATEGIES[:4])

    assert ("strategies bounded", 0, 4) == heard.counts[0]
    assert ("strategies priced", 4, 4) == heard.counts[-1]
