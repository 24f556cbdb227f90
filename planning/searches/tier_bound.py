"""A bound of placements in tiers, and the search that it makes exact.

With a fixed set of tiers that are used and a cache whose T lies between two points,
what a placement has of the objective is at least each of some sums over tables
(`forms`), and limits are sums over tables, too (`limits`). For any weights of forms
that add up to 1 and prices of limits,

    sum of tables (least over tiers (weighted forms + priced limits)) - sum of prices

is a lower bound (Lagrange), which is made large by subgradients. A search in depth
prunes by it, and by the score of what is placed already, which only grows.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from perfc.costmodels import tiers as tier_models
from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import Tier
from perfc.costmodels.tiers import DRIVE_SHARE, TierDemand
from perfc.planning.searches.tier_setting import COST, TIME, TierSetting
from perfc.planning.searches.tier_task import Placed, TierTask

_STEPS, _STEPS_AFTER = 120, 20
"""Subgradients of the first bound, and of one that begins from another."""

_FEW_PLACEMENTS = 3_000
"""Placements that are all looked at, without bounds of parts of the cache's range."""

_GAP = 1e-4
"""Share of a score by which a placement must be better to be looked for."""

_MANY_TIERS = 5
"""Tiers from which on the sets of those that are used are not told apart."""


@attrs.frozen(eq=False)
class Sums:
    """Amounts that add up over tables.

    Attributes:
        each: Of each table in each tier, [sums, tables, tiers].
        least: What there is besides, [sums].

    """

    each: Floats
    least: Floats

    @classmethod
    def of(cls, parts: Sequence[tuple[Floats, float]], shape: tuple[int, int]) -> Sums:
        """Stack them."""
        each = np.array([p for p, _ in parts]).reshape(len(parts), *shape)
        return cls(each, np.array([constant for _, constant in parts]))


@attrs.frozen(eq=False)
class Bound:
    """A lower bound, and what it says of each table in each tier.

    Attributes:
        value: No placement has less.
        reduced: Of each table in each tier, its part, [tables, tiers].
        places: The placement with the least parts, which may break limits.
        prices: Weights of forms and prices of limits that it is found with.

    """

    value: float
    reduced: Floats
    places: tuple[int, ...]
    prices: tuple[Floats, Floats]


@attrs.frozen(eq=False)
class Relaxation:
    """Placements that use some tiers, with a cache between two points.

    Attributes:
        task: Tables and tiers.
        used: Numbers of the tiers besides the native one that tables may lie in.
        told: Whether all of them are used for sure.
        low: The point that says what tables take of the cache.
        high: The point that says what they miss.

    """

    task: TierTask
    used: tuple[int, ...]
    told: bool
    low: int
    high: int

    @property
    def setting(self) -> TierSetting:
        """What placements have in common."""
        return self.task.setting

    @property
    def allowed(self) -> list[int]:
        """Numbers of the tiers that tables may lie in."""
        native = self.task.native
        return sorted({*self.used, *([native] if native >= 0 else [])})

    def amounts(self) -> tuple[Floats, Floats]:
        """Return block reads and bytes over the bus, [tables, tiers]."""
        task = self.task
        cached = np.array(task.cached)
        missed = np.where(cached, task.missed[:, self.high, None], 1.0)
        return task.amounts[1] * missed, task.amounts[2] * missed

    def forms(self) -> Sums:
        """Return sums that the objective is each at least."""
        reads, moved = self.amounts()
        shape = reads.shape
        if self.setting.objective == TIME:
            return Sums.of([*self._times(reads, moved)], shape)
        fewest = self.setting.hosts([TierDemand()] * shape[1], 1.0)
        if self.setting.objective == COST:
            prices = [tier.usd_per_byte or 0.0 for tier in self.setting.tiers]
            return Sums.of([(fewest * self.task.amounts[0] * prices, 0.0)], shape)
        # The watts of the fleet: by utilisation, and by the hosts it takes.
        watts: list[tuple[Floats, float]] = []
        setting = self.setting
        host, drawn = setting.service.watts or 0.0, np.zeros_like(reads)
        for number in self.used:
            tier = setting.tiers[number]
            if tier.read_watts is None:
                continue
            read, idle = tier_models.tier_watts(tier)
            share = setting.queries_per_s * (read - idle) / tier.reads_per_s
            drawn[:, number] = share * reads[:, number]
            host += idle if self.told else 0.0
        watts.append((fewest * drawn, fewest * host))
        for number in self.used:
            tier, only = setting.tiers[number], np.zeros(reads.shape[1])
            share = DRIVE_SHARE if math.isfinite(tier.knee) else 1.0
            only[number] = host * setting.fleet_per_s
            watts.append((reads * only / (share * tier.reads_per_s), 0.0))
            watts.append((moved * only / tier.read_bytes_per_s, 0.0))
        return Sums.of([*watts], shape)

    def _times(self, reads: Floats, moved: Floats) -> Iterator[tuple[Floats, float]]:
        """Yield the time of a query by each part of each tier that is used."""
        setting, task = self.setting, self.task
        beside = np.zeros_like(reads)
        rest = setting.base_s
        if setting.overlap:
            rest -= setting.dense_s
            if task.native >= 0:
                beside[:, task.native] = -setting.lookup_s * task.weight
            else:
                rest -= setting.lookup_s
        yield np.zeros_like(reads), setting.base_s
        for number in self.used:
            tier, only = setting.tiers[number], np.zeros(reads.shape[1])
            only[number] = 1.0
            yield beside + reads * only / tier.reads_per_s, rest
            yield beside + moved * only / tier.read_bytes_per_s, rest
            if self.told:
                latency_s, slope_s = self._tangent(tier)
                yield beside + slope_s * reads * only, rest + latency_s
        if setting.away_s_per_byte:
            only = np.array([n in self.used for n in range(reads.shape[1])])
            yield beside + setting.away_s_per_byte * moved * only, rest

    def _tangent(self, tier: Tier) -> tuple[float, float]:
        """Return a line below the latency of a tier, by its reads of one query.

        Latency bends upwards with the load. The line touches it at half of the load.
        """
        if not self._all_read:
            return 0.0, 0.0
        if not math.isfinite(tier.knee):
            return tier.read_latency_s, 0.0
        load, step = tier.reads_per_s / 2, tier.reads_per_s * _GAP
        low, high = (
            tier_models.latency_s(tier, each) for each in (load - step, load + step)
        )
        slope_s = (high - low) / (2 * step)
        at_none = (low + high) / 2 - slope_s * load
        return max(at_none, 0.0), slope_s * self.setting.queries_per_s

    @functools.cached_property
    def _all_read(self) -> bool:
        """Whether whatever lies in a tier is read, cached or not."""
        looked_up = all(table.lookups > 0 for table in self.task.tables)
        return looked_up and bool(self.task.missed[:, self.high].min() > 0)

    def limits(self) -> Floats:
        """Return the shares of limits that tables take, [limits, tables, tiers]."""
        task, setting = self.task, self.setting
        reads, moved = self.amounts()
        found: list[Floats] = []
        rate = setting.queries_per_s
        for number in self.allowed:
            tier, only = setting.tiers[number], np.zeros(reads.shape[1])
            only[number] = 1.0
            found += [
                task.amounts[0] * only / tier.capacity_bytes,
                reads * only * rate / tier.reads_per_s,
                moved * only * rate / tier.read_bytes_per_s,
            ]
        if task.cache_bytes and any(task.cached):
            taken = task.occupied[:, self.low, None] / task.cache_bytes
            found.append(taken * np.array(task.cached))
        return np.array(found)

    def bound(self, best: float, start: Bound | None = None) -> Bound:
        """Return the largest bound found, or the first that no placement can meet.

        Args:
            best: Score of a placement that is known.
            start: Bound of a wider range of the cache, whose prices are near.

        """
        forms, limits = self.forms(), self.limits()
        closed = np.full(forms.each.shape[1:], np.inf)
        closed[:, self.allowed] = 0.0
        weights = np.full(len(forms.least), 1 / len(forms.least))
        prices = np.zeros(len(limits))
        if start is not None:
            weights, prices = start.prices
        known = best if math.isfinite(best) else float(forms.each.sum()) or 1.0
        found, damp = Bound(-math.inf, closed, (), (weights, prices)), 1.0
        tables = np.arange(len(closed))
        for _ in range(_STEPS if start is None else _STEPS_AFTER):
            reduced = closed + np.tensordot(weights, forms.each, 1)
            reduced += np.tensordot(prices, limits, 1)
            places = reduced.argmin(axis=1)
            value = reduced[tables, places].sum() + weights @ forms.least - prices.sum()
            if value <= found.value:
                damp *= _DAMPING
            else:
                said = tuple(places.tolist())
                found = Bound(float(value), reduced, said, (weights, prices))
            up = forms.each[:, tables, places].sum(axis=1) + forms.least
            up = (up - weights @ up) / known
            over = limits[:, tables, places].sum(axis=1) - 1
            # A limit that holds without a price needs none.
            over[(prices <= 0) & (over < 0)] = 0.0
            norm = float(up @ up + over @ over)
            if found.value >= best * (1 - _GAP) or not norm:
                break
            step = damp * max(known - float(value), _GAP * known) / norm
            # The nearest weights that are not negative and add up to 1.
            values = weights + step / known * up
            ordered = np.sort(values)[::-1]
            sums = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
            last = int(np.flatnonzero(ordered > sums)[-1])
            weights = np.maximum(values - sums[last], 0.0)
            prices = np.maximum(prices + step * over, 0.0)
        return found


_DAMPING = 0.97
"""What steps shrink by where a bound does not grow."""


def used_sets(task: TierTask) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Yield the sets of tiers that a placement may use besides the native one.

    And whether all of a set are used for sure: of many tiers there is one set.
    """
    others = [n for n in range(len(task.setting.tiers)) if n != task.native]
    if len(others) > _MANY_TIERS:
        yield tuple(others), False
        return
    for size in range(len(others) + 1):
        for chosen in itertools.combinations(others, size):
            if chosen or task.native >= 0:
                yield chosen, True


class ExactSearch:
    """Looks for better placements until there are none, or it has looked enough."""

    def __init__(self, task: TierTask, best: Sequence[int], most_nodes: int) -> None:
        """Begin with a placement."""
        self.task, self.best = task, tuple(best)
        wrong, self.score = Placed(task, self.best).score()
        self.score = math.inf if wrong else self.score
        self.nodes, self._most_nodes = 0, most_nodes

    @property
    def complete(self) -> bool:
        """Whether it has looked at all that could be better."""
        return self.nodes < self._most_nodes

    def run(self) -> None:
        """Look at each set of tiers."""
        last = self.task.missed.shape[1] - 1
        for used, told in used_sets(self.task):
            self._between(Relaxation(self.task, used, told, 0, last), None)

    def _between(self, part: Relaxation, wider: Bound | None) -> None:
        """Look at caches between two points; where the bound allows any, at halves."""
        if not self.complete:
            return
        bound = part.bound(self.score, wider)
        if not bound.places or bound.value >= self._wanted:
            return
        wrong, score = Placed(self.task, bound.places).score()
        self.take(bound.places, math.inf if wrong else score)
        low, high = part.low, part.high
        few = len(part.allowed) ** len(self.task.tables) <= _FEW_PLACEMENTS
        if few or high - low <= 1:
            _Depth(self, bound, low, high).look()
            return
        middle = (low + high) // 2
        self._between(attrs.evolve(part, high=middle), bound)
        self._between(attrs.evolve(part, low=middle), bound)

    @property
    def _wanted(self) -> float:
        return self.score * (1 - _GAP)

    def take(self, places: Sequence[int], score: float) -> bool:
        """Keep a placement that is better; return whether it is."""
        if score >= self.score:
            return False
        self.best, self.score = tuple(places), score
        return True

    def spend(self) -> bool:
        """Count a node; return whether there may be more."""
        self.nodes += 1
        return self.complete

    def pruned(self, bound: float) -> bool:
        """Whether nothing with such a bound is wanted."""
        return bound >= self._wanted


class _Depth:
    """A search in depth: tables that matter most first, the likeliest tier first."""

    def __init__(self, search: ExactSearch, bound: Bound, low: int, high: int) -> None:
        """Put tables and tiers in order."""
        self._search, task = search, search.task
        reduced = bound.reduced
        least = reduced.min(axis=1)
        # What the bound grows by where a table is not in its likeliest tier.
        more = reduced - least[:, None]
        regret = np.sort(more, axis=1)[:, 1] if more.shape[1] > 1 else least
        self._order: list[int] = np.argsort(-regret, kind="stable").tolist()
        self._more: list[list[float]] = more.tolist()
        self._ways: list[list[int]] = np.argsort(
            reduced, axis=1, kind="stable"
        ).tolist()
        self._least = bound.value
        self._placed = Placed(task, [-1] * len(least))
        self._low, self._high = low, high
        # What tables take of the cache at most that are placed after so many others.
        taken = task.occupied[self._order, high][::-1]
        self._rest: list[float] = [*np.cumsum(taken)[::-1].tolist(), 0.0]

    def look(self) -> None:
        """Look at all placements that the bound does not rule out."""
        self._below(0, self._least)

    def _below(self, depth: int, bound: float) -> None:
        search, placed = self._search, self._placed
        if depth == len(self._order):
            search.take(placed.places, placed.score()[1])
            return
        table = self._order[depth]
        for place in self._ways[table]:
            child = bound + self._more[table][place]
            if search.pruned(child) or not search.spend():
                return
            placed.move(table, place)
            if not self._is_elsewhere(depth + 1):
                wrong, score = placed.score()
                if not wrong and not search.pruned(score):
                    self._below(depth + 1, child)
            placed.move(table, -1)

    def _is_elsewhere(self, depth: int) -> bool:
        """Whether the cache remembers less, or more, than between the two points."""
        occupied, most = self._placed.occupied, self._search.task.cache_bytes
        too_short = self._low > 0 and occupied[self._low] > most
        last = self._high == len(occupied) - 1
        return bool(
            too_short or (not last and occupied[self._high] + self._rest[depth] < most)
        )
