"""All critical paths of a schedule, and what the longest of them is made of.

The time of a schedule is the length of its longest path. Where one path alone is that
long, the time changes by what changes along it. Where several are, it grows by the most
that any of them grows, and falls by the least that any of them falls: the one-sided
derivatives of a maximum (Danskin, 1966).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats, Indices
from perfc.passes.timing.network import Network

Edge: TypeAlias = tuple[int, int]
"""Number of a place among the critical ones, and number of the kind of lag after it."""

NO_LAG, STREAM_GAP, GRAPH_GAP, LATENCY = range(4)
"""Kinds of what lies between two tasks."""
LAGS = 4

_ROUNDING = 1e-12
"""Paths that differ by less of the time are as long: sums of floats differ by that."""
_CHUNK = 256
"""Columns that are summed at a time."""


@attrs.frozen(eq=False)
class CriticalWays:
    """All paths that are as long as the schedule.

    Attributes:
        time_s: Seconds of the schedule.
        places: Places that lie on any of them, in order.
        edges: What each waits for to the last: edges from others of them; from -1, the
            start of the step.
        last: Numbers of those that end last.

    """

    time_s: float
    places: Indices
    edges: Sequence[Sequence[Edge]]
    last: Sequence[int]

    @classmethod
    def of(
        cls,
        network: Network,
        seconds: list[float],
        ends_s: list[float],
        gap_kinds: Sequence[int],
    ) -> CriticalWays:
        """Find them.

        Args:
            network: The schedule.
            seconds: Seconds of each place.
            ends_s: When each ends.
            gap_kinds: Kind of the gap before each place.

        """
        time_s = max(ends_s)
        close_s = _ROUNDING * time_s
        ends, follows = np.array(ends_s), np.array(network.follows_s(seconds))
        if not time_s:
            return cls(time_s, np.zeros(0, dtype=np.intp), [], [])
        critical = ends + follows >= time_s - close_s
        critical[0] = False
        places = np.flatnonzero(critical)
        number = {0: -1, **{place: at for at, place in enumerate(places.tolist())}}
        edges: list[list[Edge]] = []
        for place in places.tolist():
            # The sources of a place: place, seconds of the lag, kind of the lag.
            at = place - 1
            found = [(network.previous[at], network.gap_s[at], gap_kinds[place])]
            if network.issue[at]:
                found.append((network.issue[at], network.latency_s, LATENCY))
            sources = found + [(source, 0.0, NO_LAG) for source in network.after[at]]
            starts = [
                (ends_s[source] + lag_s, number[source], kind)
                for source, lag_s, kind in sources
                if source in number
            ]
            start_s = ends_s[place] - seconds[place] - close_s
            tight = [(at, kind) for begun_s, at, kind in starts if begun_s >= start_s]
            edges.append([*dict.fromkeys(tight or [max(starts)[1:]])])
        last = np.flatnonzero(ends[places] >= time_s - close_s)
        return cls(time_s, places, edges, last.tolist())

    @functools.cached_property
    def is_one(self) -> bool:
        """Whether there is one path alone."""
        return len(self.last) <= 1 and all(len(edges) == 1 for edges in self.edges)

    @functools.cached_property
    def chain(self) -> tuple[Indices, Indices]:
        """Numbers of the places of one of the paths, last to first, and lags before."""
        numbers: list[int] = []
        lags: list[int] = []
        at = self.last[0] if self.last else -1
        while at >= 0:
            numbers.append(at)
            at, kind = self.edges[at][0]
            lags.append(kind)
        return np.array(numbers, dtype=np.intp), np.array(lags, dtype=np.intp)

    def spans(self, own: Floats, lags: Floats) -> tuple[Floats, Floats]:
        """Return the most and the least that any of the paths has of each column.

        Args:
            own: What each critical place has, shape (places, columns).
            lags: What a lag of each kind has, shape (`LAGS`, columns).

        """
        if not self.last or self.is_one:
            numbers, kinds = self.chain
            whole: Floats = own[numbers].sum(axis=0) + lags[kinds].sum(axis=0)
            return whole, whole
        # The last row, which -1 finds, is the start of the step.
        most = np.zeros((len(own) + 1, own.shape[1]))
        least = most.copy()
        for at, edges in enumerate(self.edges):
            (source, kind), *others = edges
            np.add(most[source], lags[kind], out=most[at])
            np.add(least[source], lags[kind], out=least[at])
            for source, kind in others:
                np.maximum(most[at], most[source] + lags[kind], out=most[at])
                np.minimum(least[at], least[source] + lags[kind], out=least[at])
            most[at] += own[at]
            least[at] += own[at]
        ends = list(self.last)
        return most[ends].max(axis=0), least[ends].min(axis=0)

    def spans_of_labels(
        self, labels: Indices, amounts: Floats, count: int
    ) -> tuple[Floats, Floats]:
        """Return the most and the least that any of the paths has of each label.

        Args:
            labels: Label of each critical place, -1 for none.
            amounts: What each has.
            count: How many labels there are.

        """
        if not self.last or self.is_one:
            numbers, _ = self.chain
            chosen = numbers[labels[numbers] >= 0]
            whole: Floats = np.zeros(count)
            np.add.at(whole, labels[chosen], amounts[chosen])
            return whole, whole
        most, least = np.zeros(count), np.zeros(count)
        present = np.unique(labels[labels >= 0])
        for first in range(0, len(present), _CHUNK):
            columns = present[first : first + _CHUNK]
            own = np.where(labels[:, None] == columns, amounts[:, None], 0.0)
            found = self.spans(own, np.zeros((LAGS, len(columns))))
            most[columns], least[columns] = found
        return most, least
