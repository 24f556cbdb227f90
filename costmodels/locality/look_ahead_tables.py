"""Tables behind a cache that knows the next batches, and behind one that does not.

Of a batch of n lookups in a table, with U(N) the rows that N lookups touch and a window
of W batches (BagPipe, arXiv 2202.12429):

    touched      U(n)
    fetched      U((W + 1) n) - U(W n)
    resident     U(W n) - W fetched
    wanted_next  2 U(n) - U(2 n)         by the next batch: synchronised at once
    once         n U'(2 n)               hit once and not wanted next: not synchronised
    others       the rest of touched     synchronised behind

Tables share a cache: its window is shrunk until the resident rows of all fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from perfc.costmodels.locality.popularity import Popularity
from perfc.costmodels.locality.row_cache import look_ahead
from perfc.costmodels.locality.unique_rows import RowCurve, row_curve


@attrs.frozen
class LookAheadRows:
    """Rows of one table in one batch, on average.

    Attributes:
        touched: Different rows that are looked up.
        fetched: Rows that no batch of the window has brought, from servers.
        resident: Rows in the cache besides.
        wanted_next: Rows that the next batch wants, too.
        once: Rows that are hit once, and not wanted next.
        others: All others; the last three add up to `touched`.

    """

    touched: float
    fetched: float
    resident: float
    wanted_next: float
    once: float
    others: float

    def to_dict(self) -> dict[str, float]:
        """Return the entry of a document."""
        return attrs.asdict(self)


@attrs.frozen
class CachedTable:
    """A table that a batch looks up.

    Attributes:
        curve: Rows touched, against lookups.
        lookups: Lookups of a batch of all trainers.
        row_bytes: Bytes of a row.

    """

    curve: RowCurve
    lookups: float
    row_bytes: float

    @classmethod
    def of(
        cls, popularity: Popularity, rows: int, lookups: float, row_bytes: float
    ) -> CachedTable:
        """Return a table of so many rows."""
        return cls(row_curve(popularity, rows), lookups, row_bytes)

    def ahead(self, window: int) -> LookAheadRows:
        """Return the rows of a batch with so many batches ahead; 0 is no cache."""
        found = look_ahead(self.curve, self.lookups, window)
        return LookAheadRows(
            touched=self.curve.touched(self.lookups),
            fetched=found.fetched,
            resident=found.resident,
            wanted_next=found.next_batch,
            once=found.once,
            others=found.later,
        )

    def missed(self, window: float) -> float:
        """Return the rows of a batch that a cache of the last batches has not."""
        before = window * self.lookups
        found = self.curve.touched(before + self.lookups) - self.curve.touched(before)
        return min(found, self.curve.touched(self.lookups))


def window_that_fits(tables: Sequence[CachedTable], window: int, rows: float) -> int:
    """Return the largest window up to *window* whose resident rows fit in a cache.

    Args:
        tables: Tables that share the cache.
        window: Batches that are asked for.
        rows: Rows that the cache holds.

    """
    low, high = 0, window
    while low < high:
        middle = (low + high + 1) // 2
        resident = math.fsum(table.ahead(middle).resident for table in tables)
        if resident <= rows:
            low = middle
        else:
            high = middle - 1
    return low


def lru_window(tables: Sequence[CachedTable], rows: float) -> float:
    """Return how many of the last batches a cache without foresight holds, or infinity.

    Args:
        tables: Tables that share the cache.
        rows: Rows that it holds, the least recently used of which go.

    """

    def held(window: float) -> float:
        return math.fsum(t.curve.touched(window * t.lookups) for t in tables)

    high = 1.0
    while held(high) < rows:
        if high > _FAR:
            return math.inf
        high *= 2
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if held(middle) <= rows else (low, middle)
    return low


_FAR = 2**40
_HALVINGS = 60
