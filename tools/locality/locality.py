"""What an index trace says of its tables, and of the caches that they need."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np

from perfc.costmodels import Histogram, Target, unique_row_count
from perfc.costmodels.constants import constants
from perfc.costmodels.locality import POPULARITY_SCHEMA, cold_misses
from perfc.fitting.popularity_fit import PopularityFit, fit_popularity, histogram_of
from perfc.fitting.stack_distance import MissCurve, miss_curve_of
from perfc.measurements import TableTrace

_HOTTEST = 0.01
_POINTS = 13
_USABLE_L2 = constants("embedding").number("usable_l2")
SCHEMA = "perfc.locality/1"


@attrs.frozen(kw_only=True)
class Question:
    """What is asked of a trace.

    Attributes:
        batch: Samples of a batch.
        row_bytes: Of a row, as caches hold it.
        hits: Shares of hits that caches shall have.
        sample: Lookups above which rows are sampled for caches.
        fit: Whether a law is fitted, which takes seconds a table.
        target: Whose L2 is meant, if any.

    """

    batch: int
    row_bytes: float
    hits: tuple[float, ...]
    sample: int
    fit: bool = True
    target: Target | None = None


@attrs.frozen(eq=False)
class TableLocality:
    """What is known of one table.

    Attributes:
        trace: Its lookups.
        histogram: How many rows were hit how often.
        fit: A law; None where no row was hit twice.
        misses: Of LRU caches of all sizes.
        question: What was asked.

    """

    trace: TableTrace
    histogram: Histogram
    fit: PopularityFit | None
    misses: MissCurve
    question: Question

    @classmethod
    def of(cls, trace: TableTrace, question: Question) -> TableLocality:
        """Work it out."""
        histogram = histogram_of(trace.indices)
        repeats = question.fit and histogram.touched < histogram.lookups
        return cls(
            trace,
            histogram,
            fit_popularity(histogram) if repeats else None,
            miss_curve_of(trace.indices, question.sample),
            question,
        )

    @property
    def rows(self) -> int:
        """Rows that the table has at least."""
        return int(self.trace.indices.max()) + 1

    @property
    def batch(self) -> int:
        """Samples of a batch: no more than there are."""
        return min(self.question.batch, len(self.trace.lengths))

    @functools.cached_property
    def unique(self) -> float:
        """Different rows of a batch, on average over the whole ones of the trace."""
        ends = np.append(0, np.cumsum(self.trace.lengths))[:: self.batch].tolist()
        parts = [
            len(np.unique(self.trace.indices[a:b])) for a, b in list(pairwise(ends))
        ]
        return float(np.mean(parts)) if parts else 0.0

    @property
    def reuse(self) -> float:
        """Lookups of a batch over its different rows."""
        unique = self.unique
        return self.batch * self.trace.pooling / unique if unique else 0.0

    @property
    def hottest_share(self) -> float:
        """Share of lookups that name the hottest hundredth of the rows touched."""
        left: float = math.ceil(self.histogram.touched * _HOTTEST)
        found = 0.0
        for hits, rows in reversed(self.histogram.counts):
            taken = min(rows, left)
            found += taken * hits
            left -= taken
        return found / self.histogram.lookups

    @property
    def l2_hit_share(self) -> float | None:
        """Share of a batch's lookups that hit L2, from an empty one."""
        target, lookups = self.question.target, self.batch * self.trace.pooling
        if target is None or not lookups:
            return None
        held = _USABLE_L2 * target.device.l2.capacity_bytes / self.question.row_bytes
        missed = cold_misses(self.histogram, self.rows, held, lookups)
        return 1 - missed / lookups

    def curve(self) -> list[tuple[int, float]]:
        """Return pairs of rows that a cache holds and the share that misses."""
        most = max(int(self.histogram.touched), 1)
        sizes = sorted({round(c) for c in np.geomspace(1, most, _POINTS).tolist()})
        return [(size, 1 - self.misses.hit_share(size)) for size in sizes]

    def cache_rows(self) -> list[tuple[float, int | None]]:
        """Return how many rows a cache holds that hits as often as was asked."""
        return [(share, self.misses.rows_for(share)) for share in self.question.hits]


def localities(traces: Sequence[TableTrace], question: Question) -> list[TableLocality]:
    """Return the locality of each table that is looked up."""
    return [TableLocality.of(t, question) for t in traces if len(t.indices)]


def popularity_json(tables: Sequence[TableLocality]) -> str:
    """Write the popularity of all tables, as `--popularity` reads it."""
    found = {
        table.trace.name: {
            "popularity": str(table.histogram),
            "fitted": str(table.fit.popularity) if table.fit else None,
            "rows": table.rows,
            "pooling": table.trace.pooling,
        }
        for table in tables
    }
    return json.dumps({"schema": POPULARITY_SCHEMA, "tables": found}, indent=1) + "\n"


def locality_json(tables: Sequence[TableLocality]) -> str:
    """Write all that is known, of schema `perfc.locality/1`."""
    return (
        json.dumps(
            {"schema": SCHEMA, "tables": [_document(table) for table in tables]},
            indent=1,
        )
        + "\n"
    )


def _document(table: TableLocality) -> dict[str, object]:
    fit, question = table.fit, table.question
    return {
        "name": table.trace.name,
        "samples": len(table.trace.lengths),
        "lookups": len(table.trace.indices),
        "pooling": table.trace.pooling,
        "rows": table.rows,
        "rows_touched": int(table.histogram.touched),
        "batch": table.batch,
        "unique_per_batch": table.unique,
        "reuse": table.reuse,
        "hottest_percent_share": table.hottest_share,
        "popularity": str(table.histogram),
        "fitted": {
            "popularity": str(fit.popularity),
            "s": fit.s,
            "q": fit.q,
            "rows": fit.rows,
            "share_error": fit.error,
            "share_noise": fit.noise,
            "unique_per_batch": unique_row_count(
                fit.popularity, fit.rows, table.batch * table.trace.pooling
            ),
        }
        if fit
        else None,
        "sampled_share": table.misses.rate,
        "l2_hit_share": table.l2_hit_share,
        "row_bytes": question.row_bytes,
        "miss_curve": [{"rows": r, "miss_share": m} for r, m in table.curve()],
        "cache_for_hits": [
            {"hit_share": share, "rows": rows} for share, rows in table.cache_rows()
        ],
    }


def locality_text(tables: Sequence[TableLocality]) -> str:
    """Say it in a table, and what popularity to pass on."""
    question = tables[0].question
    hits = [f"{share:.0%} hits" for share in question.hits]
    head = ["table", "lookups", "rows", "touched", "pooling", "unique", "reuse"]
    head += ["hottest 1 %", *(["L2 hits"] if question.target else []), *hits]
    lines = [head, *(_cells(table) for table in tables)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [_line(line, widths) for line in lines]
    batch = tables[0].batch
    text += ["", f"unique rows and reuse are of batches of {batch:,}; caches are LRU,"]
    text += [f"in rows of {question.row_bytes:g} bytes, empty at first", ""]
    if not question.fit:
        return "\n".join(text[:-1]) + "\n"
    text += ["fitted popularity, to pass on with --popularity NAME=TEXT"]
    wide = max(len(table.trace.name) for table in tables)
    text += [f"  {table.trace.name:<{wide}}  {_fitted(table)}" for table in tables]
    return "\n".join(text) + "\n"


def _cells(table: TableLocality) -> list[str]:
    l2 = table.l2_hit_share
    return [
        table.trace.name,
        f"{len(table.trace.indices):,}",
        f"{table.rows:,}",
        f"{table.histogram.touched:,.0f}",
        f"{table.trace.pooling:.3g}",
        f"{table.unique:,.0f}",
        f"{table.reuse:.2f}",
        f"{table.hottest_share:.0%}",
        *([] if l2 is None else [f"{l2:.0%}"]),
        *("never" if rows is None else f"{rows:,}" for _, rows in table.cache_rows()),
    ]


def _fitted(table: TableLocality) -> str:
    if table.fit is None:
        return "none: no row is looked up twice"
    fit = table.fit
    off = f"shares of lookups off by {fit.error:.1%} ({fit.noise:.1%} by chance)"
    return f"{fit.popularity} of {fit.rows:,} rows, {off}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)])
