"""The best strategy: bounds first, and prices of what could be better."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

import attrs

from perfc.ir import PerfcError, spend
from perfc.ir.support import brief, count_done, counted
from perfc.planning.plans import is_less, ranking
from perfc.planning.strategies.price import Objective, StrategyBound, StrategyPrice
from perfc.planning.strategies.space import Refused
from perfc.planning.strategies.strategy import Strategy

FAST = "fast"
"""The method that prices only what could be best."""

ALL = "all"
METHODS = (FAST, ALL)
"""Price what could be best, or everything."""

SLOWER = "cannot be better than the best"
LARGER = "does not fit"
LIMIT, INTERRUPTED = "--limit is reached", "interrupted"
"""Why a strategy has not been priced."""


_Bounded: TypeAlias = tuple[Strategy, StrategyBound | None]


class StrategyPricer(Protocol):
    """Tells what strategies take. Each may raise a `PerfcError`: it cannot be."""

    @property
    def limit_bytes(self) -> float:
        """Memory that a GPU may need."""
        ...

    def bound(self, strategy: Strategy) -> StrategyBound:
        """Return the bound of a strategy, what it takes at least, quickly."""
        ...

    def price(self, strategy: Strategy) -> StrategyPrice:
        """Return the price of a strategy."""
        ...


@attrs.frozen
class Left:
    """A strategy that has not been priced, and why.

    Attributes:
        strategy: It.
        reason: One of the above.
        bound: What it takes at least; None if that is not known.

    """

    strategy: Strategy
    reason: str
    bound: StrategyBound | None = None


@attrs.define(eq=False)
class Findings:
    """Results of a search so far.

    Attributes:
        objective: What is ranked by.
        priced: Prices, as they came.
        left: What has not been priced.
        refused: What cannot be.
        errors: The errors of `refused`, where passes have raised them.
        interrupted: Whether it ended before its time.

    """

    __repr__ = brief

    objective: Objective
    priced: list[StrategyPrice] = attrs.field(factory=list[StrategyPrice])
    left: list[Left] = attrs.field(factory=list[Left])
    refused: list[Refused] = attrs.field(factory=list[Refused])
    errors: list[PerfcError] = attrs.field(factory=list[PerfcError])
    interrupted: bool = False

    @property
    def ranked(self) -> list[StrategyPrice]:
        """Prices in order: those that fit before the others, the best first."""
        return self.objective.ranked(self.priced)

    @property
    def best(self) -> StrategyPrice | None:
        """The best of those that fit, if any does."""
        fitting = [price for price in self.priced if not price.missing_bytes]
        return next(iter(self.objective.ranked(fitting)), None)


@attrs.define(eq=False)
class Search:
    """Prices strategies, and leaves out what cannot be best.

    Attributes:
        pricer: Who prices.
        objective: What is best.
        method: One of `METHODS`. `fast` prices in the order of the bounds, and leaves
            out what takes more memory than there is, or more than the best has, at
            least: what is best is the same. One of each family is priced all the same.
        limit: How many to price; None for no limit.

    """

    pricer: StrategyPricer
    objective: Objective
    method: str = FAST
    limit: int | None = None

    def run(
        self,
        given: Sequence[Strategy | Refused] = (),
        candidates: Iterable[Strategy | Refused] = (),
    ) -> Findings:
        """Price what is given in any case, and what could be best of the others.

        An interrupt ends it, not the program: what has been priced stays.
        """
        found = Findings(self.objective)
        asked = list(_strategies(given, found))
        first = frozenset(asked)
        others = [s for s in _strategies(candidates, found) if s not in first]
        waiting = dict.fromkeys((*asked, *others))
        spend("strategies", len(waiting))
        try:
            self._run(found, asked, others, waiting)
        except KeyboardInterrupt:
            found.interrupted = True
            found.left += [Left(strategy, INTERRUPTED) for strategy in waiting]
        return found

    def _run(
        self,
        found: Findings,
        asked: Sequence[Strategy],
        others: Sequence[Strategy],
        waiting: dict[Strategy, None],
    ) -> None:
        """Price; what is done is taken out of *waiting*."""

        def done(strategy: Strategy) -> None:
            del waiting[strategy]
            priced = len(found.priced)
            count_done("strategies priced", priced, priced + len(waiting))

        for strategy in asked:
            self._price(found, strategy)
            done(strategy)
        bounds: dict[Strategy, StrategyBound | None] = dict.fromkeys(others)
        if self.method == FAST:
            bounds.update(self._bounded(found, others))
            for strategy in others:
                if bounds[strategy] is None:
                    done(strategy)
        listed = [(s, b) for s, b in bounds.items() if s in waiting]
        for strategy, bound in self._ordered(listed):
            reason = self._reason(found, strategy, bound)
            if reason:
                found.left.append(Left(strategy, reason, bound))
            else:
                self._price(found, strategy)
            done(strategy)

    def _bounded(
        self, found: Findings, strategies: Sequence[Strategy]
    ) -> Iterator[tuple[Strategy, StrategyBound]]:
        """Yield bounds; what has none is refused."""
        for strategy in counted(strategies, "strategies bounded"):
            try:
                yield strategy, self.pricer.bound(strategy)
            except PerfcError as error:
                _refuse(found, strategy, error)

    def _ordered(self, listed: Sequence[_Bounded]) -> list[_Bounded]:
        """Return strategies, those that could be best first."""
        found = sorted(listed, key=lambda item: (item[0].stages, str(item[0])))
        costs = [
            0.0 if bound is None else self.objective.cost(strategy, bound)
            for strategy, bound in found
        ]
        return [found[n] for n in ranking(costs)]

    def _reason(
        self, found: Findings, strategy: Strategy, bound: StrategyBound | None
    ) -> str:
        """Return why not to price a strategy; "" to price it."""
        if bound is not None:
            if bound.peak_bytes > self.pricer.limit_bytes:
                return LARGER
            # One strategy of each family is priced, however slow, so that a report can
            # compare families.
            best, least = found.best, self.objective.cost(strategy, bound)
            families = {price.strategy.family for price in found.priced}
            known = strategy.family in families
            if best and known:
                cost = self.objective.cost(best.strategy, best)
                if is_less(cost, least):
                    return SLOWER
        full = self.limit is not None and len(found.priced) >= self.limit
        return LIMIT if full else ""

    def _price(self, found: Findings, strategy: Strategy) -> None:
        try:
            found.priced.append(self.pricer.price(strategy))
        except PerfcError as error:
            _refuse(found, strategy, error)


def _strategies(
    listed: Iterable[Strategy | Refused], found: Findings
) -> Iterator[Strategy]:
    """Yield each strategy once; note those that cannot be."""
    seen: set[Strategy | Refused] = set()
    for item in listed:
        if item in seen:
            continue
        seen.add(item)
        if isinstance(item, Refused):
            if item not in found.refused:
                found.refused.append(item)
        else:
            yield item


def _refuse(found: Findings, strategy: Strategy, error: PerfcError) -> None:
    found.refused.append(Refused(strategy, str(error)))
    found.errors.append(error)
