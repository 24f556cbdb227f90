"""Tables to place in tiers: what each asks of each tier, whatever else lies there.

Tables behind one cache share it: with an LRU cache each holds what the last T queries
looked up (`costmodels/tiers/caches.py`), with one T for all, which gets shorter the
more tables there are. For each T a table's reads and its part of the cache are known,
so that both add up over tables as curves over T; where the parts fill the cache is the
T of a placement. Curves are sampled evenly in the logarithm of T.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from perfc.costmodels import locality
from perfc.costmodels import tiers as tier_models
from perfc.costmodels.kernels import Floats
from perfc.costmodels.tiers import (
    ROW_OVERHEAD_BYTES,
    TableCost,
    TierDemand,
    TieredTable,
)
from perfc.planning.searches.tier_setting import TierSetting

Places = Sequence[int]
"""Number of the tier of each table."""

_POINTS = 96
"""Lengths of T that curves are sampled at; more change no score by a thousandth."""

_FIRST, _LAST = 1e-3, 1e12
"""Queries that a cache may remember, at least and at most."""

_FEW, _HALVINGS = 1e-3, 40
"""Share of misses from which on curves are not sampled; steps of a bisection."""


@attrs.frozen(kw_only=True, eq=False)
class TierTask:
    """Tables, tiers and a cache.

    Attributes:
        setting: What placements have in common.
        tables: The tables.
        cached: Of each tier, whether the cache is in front of it.
        cache_bytes: Of the cache.
        pooled_share: Of lookups, those that a cache of pooled rows saves.

    """

    setting: TierSetting
    tables: tuple[TieredTable, ...]
    cached: tuple[bool, ...]
    cache_bytes: float = 0.0
    pooled_share: float = 0.0

    def costs(self, places: Places) -> list[TableCost]:
        """Return the exact cost of each table where it is placed."""
        pairs = list(zip(self.tables, places, strict=True))
        behind = [
            table
            for table, place in pairs
            if self.cached[place] and self.cache_bytes > 0
        ]
        held = tier_models.shared_cache(behind, self.cache_bytes) if behind else []
        rows = dict(zip((table.name for table in behind), held, strict=True))
        return [
            tier_models.table_cost(
                table,
                self.setting.tiers[place],
                rows.get(table.name, 0.0),
                self.pooled_share,
            )
            for table, place in pairs
        ]

    def demands(self, costs: Sequence[TableCost], places: Places) -> list[TierDemand]:
        """Add up what tables cost, by tier."""
        pairs = list(zip(costs, places, strict=True))
        return [
            TierDemand.of(cost for cost, place in pairs if place == number)
            for number in range(len(self.setting.tiers))
        ]

    def native_share(self, places: Places) -> float:
        """Return the share of looked up bytes that lies in the native tier."""
        return float(self.weight[[p == self.native for p in places]].sum())

    @functools.cached_property
    def native(self) -> int:
        """Number of the native tier; -1 if tables may not lie there."""
        names = [tier.name for tier in self.setting.tiers]
        native = self.setting.native
        return names.index(native) if native in names else -1

    @functools.cached_property
    def weight(self) -> Floats:
        """Share of the bytes that a query looks up, [tables]."""
        found = np.array([t.lookups * t.row_bytes for t in self.tables])
        whole = found.sum()
        return found / whole if whole else found

    @functools.cached_property
    def amounts(self) -> Floats:
        """Bytes stored, block reads and bytes over the bus of each table in each tier.

        Where no row is cached, [3, tables, tiers].
        """
        costs = [
            [
                tier_models.table_cost(table, tier, 0.0, self.pooled_share)
                for tier in self.setting.tiers
            ]
            for table in self.tables
        ]
        return np.array(
            [
                [[cost.stored_bytes for cost in row] for row in costs],
                [[cost.block_reads for cost in row] for row in costs],
                [[cost.bus_bytes for cost in row] for row in costs],
            ],
            dtype=np.float64,
        )

    @functools.cached_property
    def missed(self) -> Floats:
        """Share of lookups that miss the cache, for each T, [tables, points]."""
        return self._curves[0]

    @functools.cached_property
    def occupied(self) -> Floats:
        """Bytes of the cache that a table takes, for each T, [tables, points]."""
        return self._curves[1]

    @functools.cached_property
    def _curves(self) -> tuple[Floats, Floats]:
        if not self.cache_bytes or not any(self.cached):
            shape = len(self.tables), 1
            return np.ones(shape), np.zeros(shape)
        of_like = functools.cache(_CacheCurve.of)  # of a hundred tables many are alike
        curves = [
            of_like(t.popularity, t.rows, t.pooling, t.lookups, t.row_bytes)
            for t in self.tables
        ]
        different, most = [*dict.fromkeys(curves)], self.cache_bytes

        def all_held(queries: float) -> float:
            held = {curve: curve.held(queries) for curve in different}
            return math.fsum(map(held.__getitem__, curves))

        shortest = _until(lambda t: all_held(t) >= most)
        longest = _until(
            lambda t: all(c.held(t) >= most or c.missed(t) < _FEW for c in different)
        )
        queries = np.geomspace(shortest, max(longest, shortest), _POINTS).tolist()
        # Behind them stands a cache that holds all rows.
        missed = {c: [*map(c.missed, queries), 0.0] for c in different}
        held = {c: [*map(c.held, queries), c.whole_bytes] for c in different}
        return (
            np.array([*map(missed.__getitem__, curves)]),
            np.array([*map(held.__getitem__, curves)]),
        )

    def start(self, places: Places) -> Placed:
        """Return a placement that a search changes."""
        return Placed(self, places)


class Placed:
    """A placement whose sums are kept while tables move."""

    def __init__(self, task: TierTask, places: Places) -> None:
        """Add up tables; of those at -1, which are nowhere yet, nothing."""
        self.task, self.places = task, [-1] * len(places)
        points, tiers = task.missed.shape[1], len(task.setting.tiers)
        self._stored = np.zeros(tiers)
        self._reads = np.zeros((points, 2, tiers))
        self._each = np.zeros((points, tiers, len(places)))
        self.occupied = np.zeros(points)
        self._away = 0.0
        for table, place in enumerate(places):
            self.move(table, place)

    def move(self, table: int, place: int) -> None:
        """Put a table into another tier; -1 takes it out."""
        before = self.places[table]
        if before >= 0:
            self._add(table, before, -1.0)
        if place >= 0:
            self._add(table, place, 1.0)
        self.places[table] = place

    def _add(self, table: int, place: int, sign: float) -> None:
        task = self.task
        stored, reads, moved = task.amounts[:, table, place].tolist()
        cached = task.cached[place]
        missed = task.missed[table] if cached else 1.0
        self._stored[place] += sign * stored
        self._reads[:, 0, place] += sign * reads * missed
        self._reads[:, 1, place] += sign * moved * missed
        self._each[:, place, table] = reads * missed if sign > 0 else 0.0
        if cached:
            self.occupied += sign * task.occupied[table]
        if place != task.native:
            self._away += sign * float(task.weight[table])

    def demands(self) -> list[TierDemand]:
        """Return the demand for each tier now."""
        point, rest = self._point()
        reads, most = self._reads[point], self._each[point].max(axis=1)
        if rest:
            after = point + 1
            reads = (1 - rest) * reads + rest * self._reads[after]
            most = (1 - rest) * most + rest * self._each[after].max(axis=1)
        # Where tables have left, rounding leaves something, on either side of 0.
        block_reads = np.maximum(reads[0], most).tolist()
        moved = np.where(most > 0, np.maximum(reads[1], 0.0), 0.0).tolist()
        stored = self._stored.tolist()
        each = zip(stored, block_reads, moved, most.tolist(), strict=True)
        return [
            TierDemand(stored_bytes=s, block_reads=r, bus_bytes=b, most_reads=m)
            for s, r, b, m in each
        ]

    def _point(self) -> tuple[int, float]:
        """Return where the cache is full: the point before, and how far beyond."""
        occupied, most = self.occupied, self.task.cache_bytes
        after = int(np.searchsorted(occupied, most))
        if after in (0, len(occupied)):
            return max(after - 1, 0), 0.0
        low, high = float(occupied[after - 1]), float(occupied[after])
        return after - 1, (most - low) / (high - low)

    def score(self) -> tuple[float, float]:
        """Return the excess and the score of the tables that are placed.

        What is nowhere yet counts as native, so that no way to place it has less.
        """
        return self.task.setting.score(self.demands(), max(1 - self._away, 0.0))


@attrs.frozen(eq=False)
class _CacheCurve:
    """What a cache holds of a table, and what of its lookups it misses."""

    curve: locality.RowCurve
    lookups: float
    entry_bytes: float

    @classmethod
    def of(
        cls,
        popularity: locality.Popularity,
        rows: int,
        pooling: float,
        lookups: float,
        row_bytes: int,
    ) -> _CacheCurve:
        curve = locality.row_curve(popularity, rows, pooling)
        return cls(curve, lookups, row_bytes + ROW_OVERHEAD_BYTES)

    def held(self, queries: float) -> float:
        """Return the bytes of the rows that so many queries look up."""
        return self.curve.touched(self.lookups * queries) * self.entry_bytes

    def missed(self, queries: float) -> float:
        """Return the share of lookups whose row the last queries have not."""
        return min(self.curve.novelty(self.lookups * queries), 1.0)

    @property
    def whole_bytes(self) -> float:
        """Bytes of all rows that are looked up at all."""
        return self.curve.rows * self.entry_bytes if self.lookups else 0.0


def _until(enough: Callable[[float], bool]) -> float:
    low, high = math.log(_FIRST), math.log(_LAST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(math.exp(middle)) else (middle, high)
    return math.exp(high)
