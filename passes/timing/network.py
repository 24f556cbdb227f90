"""A schedule as a network of tasks, whose time is found again for other durations.

A schedule without contention is a longest path (max-plus algebra: Baccelli et al.,
1992): a task starts at the latest of what it waits for, each with a lag. So its time
is known, for any duration of one task, from three numbers of that task: the longest way
up to its start, the longest way after its end, and the longest way that passes it by.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats, Indices
from perfc.passes.timing.timeline import Timeline

Waits: TypeAlias = tuple[tuple[int, float], ...]
"""Numbers of places, and the seconds after them."""


@attrs.frozen(eq=False)
class Network:
    """Who waits for whom, by *place*: an order that respects the edges.

    Place 0 is the start of the step. Tasks of one rank class have the places 1, 2, …;
    a collective of several has, before its tasks, a place for each one's arrival and
    one, where all meet, that they start from. Those take no time.

    Attributes:
        places: Place of each task, by its flat number.
        previous: Place of the task before on the same resource, 0 for none.
        gap_s: Seconds after that.
        issue: Place of the call that enqueued the task, 0 for none.
        latency_s: Seconds after that.
        after: Places of what else is waited for.
        arrivals: Place of the arrival of each task that meets others, by its place.

    """

    places: Sequence[int]
    previous: list[int]
    gap_s: list[float]
    issue: list[int]
    latency_s: float
    after: list[tuple[int, ...]]
    arrivals: dict[int, int] = attrs.field(factory=dict[int, int], init=False)

    @classmethod
    def of(cls, timeline: Timeline) -> Network:
        """Return the network of a timeline."""
        # Otherwise tasks wait for others behind them in their table.
        if all(isinstance(own, range) and not group for own, group in timeline.stages):
            return cls(
                range(1, len(timeline) + 1),
                [task + 1 for task in timeline.previous],
                timeline.gap_s,
                [task + 1 for task in timeline.issue],
                timeline.latency_s,
                [tuple([j + 1 for j in a]) if a else a for a in timeline.after],
            )
        return _joined(timeline)

    def __len__(self) -> int:
        return len(self.previous)

    def spread(self, duration_s: Sequence[float]) -> list[float]:
        """Return the seconds of each place, 0 of those that are no task.

        Args:
            duration_s: Seconds of each task, by its flat number.

        """
        if isinstance(self.places, range):
            return [0.0, *duration_s]
        seconds = [0.0] * (len(self) + 1)
        for place, second in zip(self.places, duration_s, strict=True):
            seconds[place] = second
        return seconds

    def arrival(self, task: int) -> int:
        """Return the place that waits for the task before: not that of a meeting."""
        place = self.places[task]
        return self.arrivals.get(place, place)

    def ends_s(
        self, seconds: list[float], known: list[float] | None = None, first: int = 1
    ) -> list[float]:
        """Return when each place ends.

        Args:
            seconds: Seconds of each place.
            known: Ends for seconds that are the same before *first*.
            first: The first place whose seconds differ.

        """
        ends = [0.0] if known is None else known[:first]
        add, latency_s = ends.append, self.latency_s
        previous, gaps_s, issue = self.previous, self.gap_s, self.issue
        afters = self.after
        if first > 1:
            previous, gaps_s = previous[first - 1 :], gaps_s[first - 1 :]
            issue, afters = issue[first - 1 :], afters[first - 1 :]
        columns = (previous, gaps_s, issue, afters, seconds[first:])
        for c, gap_s, q, after, taken_s in zip(*columns, strict=True):
            s = ends[c]
            if gap_s:
                s += gap_s
            if q:
                t = ends[q] + latency_s
                if t > s:  # noqa: PLR1730 - `max` takes twice as long
                    s = t
            if after:
                for j in after:
                    s = max(s, ends[j])
            add(s + taken_s)
        return ends

    def follows_s(self, seconds: list[float]) -> list[float]:
        """Return the longest way from the end of each place to the end of the step."""
        found = [0.0] * (len(self) + 1)
        latency_s = self.latency_s
        place = len(self)
        columns = (
            reversed(self.previous),
            reversed(self.gap_s),
            reversed(self.issue),
            reversed(self.after),
            reversed(seconds[1:]),
        )
        for c, gap_s, q, after, taken_s in zip(*columns, strict=True):
            way_s = taken_s + found[place]
            if c and way_s + gap_s > found[c]:
                found[c] = way_s + gap_s
            if q and way_s + latency_s > found[q]:
                found[q] = way_s + latency_s
            if after:
                for j in after:
                    found[j] = max(found[j], way_s)
            place -= 1
        return found

    @functools.cached_property
    def _edges(self) -> tuple[Indices, Indices, Floats]:
        """Who waits for whom: source, target, seconds between them."""
        number = np.arange(1, len(self) + 1)
        waits = [(j, i) for i, after in enumerate(self.after, 1) for j in after]
        waited = np.array(waits, dtype=np.intp).reshape(-1, 2)
        source = np.concatenate([self.previous, self.issue, waited[:, 0]])
        target = np.concatenate([number, number, waited[:, 1]])
        latency_s = np.full(len(self), self.latency_s)
        lag_s = np.concatenate([self.gap_s, latency_s, np.zeros(len(waited))])
        kept = source > 0
        return source[kept], target[kept], lag_s[kept]

    @functools.cached_property
    def _jumps(self) -> tuple[Indices, Indices, Floats]:
        """Edges around at least one place: source, target, seconds between them."""
        source, target, lag_s = self._edges
        kept = target - source > 1
        return source[kept], target[kept], lag_s[kept]

    def ways(self, seconds: list[float], ends_s: list[float]) -> Ways:
        """Return the ways through and around each place.

        Args:
            seconds: Seconds of each place.
            ends_s: When each ends.

        """
        follows = np.array(self.follows_s(seconds))
        taken, ends = np.array(seconds), np.array(ends_s)
        source, target, lag_s = self._jumps
        lengths = ends[source] + lag_s + (taken + follows)[target]
        around = _covering(source + 1, target - 1, lengths, len(self) + 1)
        # A way that ends before a place, or begins behind it, has no edge around it.
        around[1:] = np.maximum(around[1:], np.maximum.accumulate(ends)[:-1])
        onwards = taken + follows
        begun = np.maximum.accumulate(onwards[::-1])[::-1]
        around[:-1] = np.maximum(around[:-1], begun[1:])
        through = ends - taken + follows
        return Ways(through.tolist(), around.tolist(), onwards)

    def stretch(self, places: range, ends_s: list[float], ways: Ways) -> Stretch:
        """Return the ways through and around neighbouring places.

        Args:
            places: The places.
            ends_s: When each place of the network ends.
            ways: The ways of each place of the network.

        """
        first, last = places[0], places[-1]
        source, target, lag_s = self._edges
        leaving = (source <= last) & (target > last)
        source, target = source[leaving], target[leaving]
        beyond_s = lag_s[leaving] + ways.onwards_s[target]
        jumps = source < first
        ends = np.array(ends_s[:first])
        around = (
            ends,  # what ends before, what begins behind, and what jumps over
            ways.onwards_s[last + 1 :],
            ends[source[jumps]] + beyond_s[jumps],
        )
        out_s = np.zeros(len(places))
        np.maximum.at(out_s, source[~jumps] - first, beyond_s[~jumps])
        return Stretch(
            places,
            [self._row(place, first, ends_s) for place in places],
            out_s.tolist(),
            float(max(way.max(initial=0.0) for way in around)),
        )

    def _row(self, place: int, first: int, ends_s: list[float]) -> tuple[float, Waits]:
        """Return when a place could start by what lies before *first*, and the rest."""
        at = place - 1
        waits = [(self.previous[at], self.gap_s[at])]
        if self.issue[at]:
            waits.append((self.issue[at], self.latency_s))
        waits += [(other, 0.0) for other in self.after[at]]
        start_s = max(
            [ends_s[j] + lag_s for j, lag_s in waits if j < first], default=0.0
        )
        return start_s, tuple([(j - first, lag_s) for j, lag_s in waits if j >= first])


@attrs.frozen(eq=False)
class Ways:
    """The longest ways of a step with respect to each place.

    Attributes:
        through_s: Seconds of the longest way through it, without its own.
        around_s: Seconds of the longest way that does not pass it.
        onwards_s: Seconds of the longest way from its start on, with its own.

    """

    through_s: list[float]
    around_s: list[float]
    onwards_s: Floats

    def time_s(self, place: int, seconds: float) -> float:
        """Return the time of the step if one place takes *seconds*."""
        way_s, by_s = self.through_s[place] + seconds, self.around_s[place]
        return way_s if way_s > by_s else by_s  # noqa: FURB136 - half the time of `max`


@attrs.frozen(eq=False)
class Stretch:
    """The longest ways of a step with respect to neighbouring places.

    Attributes:
        places: The places.
        rows: For each, when what lies before all of them lets it start; and which of
            them it waits for.
        out_s: Seconds of the longest way from the end of each to the end of the step
            that passes none of the others.
        around_s: Seconds of the longest way that passes none of them.

    """

    places: range
    rows: list[tuple[float, Waits]]
    out_s: list[float]
    around_s: float

    def time_s(self, seconds: Sequence[float]) -> float:
        """Return the time of the step if the places take *seconds*."""
        longest_s, ends = self.around_s, list[float]()
        for (start_s, waits), out_s, taken_s in zip(
            self.rows, self.out_s, seconds, strict=True
        ):
            s = start_s
            for j, lag_s in waits:
                s = max(s, ends[j] + lag_s)
            ends.append(s + taken_s)
            longest_s = max(longest_s, s + taken_s + out_s)
        return longest_s


def _covering(first: Indices, last: Indices, value: Floats, size: int) -> Floats:
    """Return, for each place, the largest value of the stretches that cover it.

    Each stretch is two of a power of two, which overlap; those are halved, longest
    first, until they are single places: n log n, all of it in arrays.
    """
    level = np.frexp(last - first + 1)[1] - 1
    found = np.zeros(size)
    for power in range(int(level.max(initial=0)), -1, -1):
        own = level == power
        np.maximum.at(found, first[own], value[own])
        np.maximum.at(found, last[own] + 1 - (1 << power), value[own])
        half = (1 << power) >> 1
        if half:
            halved = found.copy()
            np.maximum(halved[half:], found[:-half], out=halved[half:])
            found = halved
    return found


def _joined(timeline: Timeline) -> Network:
    """Return the network of several rank classes that meet in collectives."""
    places = [0] * (len(timeline) + 1)  # -1, no task, finds the 0 at the end
    network = Network(places, [], [], [], timeline.latency_s, [])
    for tasks, group in timeline.stages:
        for task in tasks:
            _add(network, timeline, task)
            places[task] = len(network)
        if not group:
            continue
        arrivals: list[int] = []
        for task in group:
            _add(network, timeline, task)
            arrivals.append(len(network))
        _add_start(network, 0, tuple(arrivals))
        meeting = len(network)
        for task, arrival in zip(group, arrivals, strict=True):
            _add_start(network, meeting, ())
            places[task] = len(network)
            network.arrivals[places[task]] = arrival
    places.pop()
    return network


def _add(network: Network, timeline: Timeline, task: int) -> None:
    places = network.places
    network.previous.append(places[timeline.previous[task]])
    network.gap_s.append(timeline.gap_s[task])
    network.issue.append(places[timeline.issue[task]])
    network.after.append(tuple([places[j] for j in timeline.after[task]]))


def _add_start(network: Network, previous: int, after: tuple[int, ...]) -> None:
    network.previous.append(previous)
    network.gap_s.append(0.0)
    network.issue.append(0)
    network.after.append(after)
