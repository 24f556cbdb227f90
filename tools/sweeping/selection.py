"""The best of some rows: by one metric, or those that no other row beats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfc.planning.plans import grades, ranking
from perfc.tools.sweeping.space import Row, is_better_high

Grades = NDArray[np.intp]


def known(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    """Return the rows that have all of some metrics."""
    return [row for row in rows if all(row[metric] is not None for metric in metrics)]


def lead(rows: Sequence[Row], metrics: Sequence[str]) -> str:
    """Return the first metric that some row has; where there is none, the first."""
    found = (m for m in metrics if any(row[m] is not None for row in rows))
    return next(found, metrics[0])


def best(rows: Sequence[Row], metric: str, count: int) -> list[Row]:
    """Return the best rows by a metric, the best first; of equals, the first.

    What does not fit into memory comes after what does.
    """
    complete = known(rows, (metric,))
    ordered = [complete[place] for place in ranking(_costs(complete, metric))]
    ordered.sort(key=lambda row: row.get("fits") is False)
    return ordered[:count]


def best_first(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    """Return all rows, the best by the first known metric first, the unknown last."""
    metric = lead(rows, metrics)
    return [
        *best(rows, metric, len(rows)),
        *(row for row in rows if row[metric] is None),
    ]


def front(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    """Return the rows that no other row beats, in their order.

    A row beats another one that is nowhere better, and somewhere worse. Metrics that
    differ by rounding alone are equal.
    """
    complete = known(rows, metrics)
    if not complete:
        return []
    columns = [grades(_costs(complete, metric)) for metric in metrics]
    costs = np.array(columns, dtype=np.intp).T
    places = sorted(_unbeaten(costs))
    return [complete[place] for place in places]


def _costs(rows: Sequence[Row], metric: str) -> list[float]:
    sign = -1.0 if is_better_high(metric) else 1.0
    return [sign * float(row[metric]) for row in rows]


def _unbeaten(costs: Grades) -> list[int]:
    """Return the places of what nothing beats, of costs [rows, metrics]."""
    order = np.lexsort(costs.T[::-1])  # nothing is beaten by what comes after it
    kept = np.empty_like(costs)
    places: list[int] = []
    for place in order.tolist():
        others = kept[: len(places)]
        none_worse = (others <= costs[place]).all(axis=1)
        if (none_worse & (others < costs[place]).any(axis=1)).any():
            continue
        kept[len(places)] = costs[place]
        places.append(place)
    return places
