"""The time of a schedule under many configurations at once.

Arrays run over configurations, Python over tasks: one row of numbers a task, in blocks
of configurations that fit a cache. Where few tasks vary, all others are replaced by the
longest ways between those that do, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats
from perfc.passes.timing.network import Network

BLOCK = 4096
"""Configurations of a block; some tens of rows of them fit a processor's cache."""

_FEW = 5
"""Tasks for each one that varies, from which on the others are replaced by ways."""
_MANY = 1000
"""Configurations from which on that pays."""


@attrs.frozen
class Amount:
    """Seconds that vary: a number times columns of configurations.

    Attributes:
        scale: The number.
        columns: Numbers of the columns.

    """

    scale: float
    columns: tuple[int, ...] = ()

    def times(self, factor: float, *columns: int) -> Amount:
        """Return so many times it."""
        return Amount(self.scale * factor, (*self.columns, *columns))


Lag: TypeAlias = float | Amount
Source: TypeAlias = tuple[int, Lag]
"""A row that is waited for, and the seconds after its end."""


@attrs.frozen
class Row:
    """A task, or a way that tasks have in common.

    Attributes:
        sources: What it waits for, as rows before it; row 0 is the start of the step.
        seconds: What it takes.

    """

    sources: tuple[Source, ...]
    seconds: Lag


def times_s(rows: Sequence[Row], columns: Sequence[Floats], count: int) -> Floats:
    """Return when the last row ends, under each configuration.

    Args:
        rows: Rows 1, 2, …; the last one waits for all that nobody else waits for.
        columns: What amounts are made of, one number a configuration.
        count: How many configurations there are.

    Returns:
        Seconds, one a configuration.

    """
    found = np.empty(count)
    if not rows:
        found.fill(0.0)
        return found
    buffers, plan = _plan(rows)
    size = min(BLOCK, count)
    store = np.empty((buffers, size))
    spare = np.empty((2, size))
    for first in range(0, count, BLOCK):
        width = min(BLOCK, count - first)
        views = [store[n, :width] for n in range(buffers)]
        block = [column[first : first + width] for column in columns]
        views[0].fill(0.0)
        _run(plan, views, block, (spare[0, :width], spare[1, :width]))
        found[first : first + width] = views[plan[-1][0]]
    return found


_Step: TypeAlias = tuple[int, tuple[Source, ...], Lag]
"""Buffer of a row, buffers of what it waits for with lags, and what it takes."""


def _plan(rows: Sequence[Row]) -> tuple[int, list[_Step]]:
    """Give each row a buffer, which is free again after its last reader.

    Fewer buffers than rows: that many fit a cache.
    """
    last = [0] * (len(rows) + 1)
    for number, row in enumerate(rows, 1):
        for source, _ in row.sources:
            last[source] = number
    last[0] = len(rows) + 1
    free: list[int] = []
    buffer, buffers = [0], 1
    plan: list[_Step] = []
    for number, row in enumerate(rows, 1):
        if free:
            own = free.pop()
        else:
            own, buffers = buffers, buffers + 1
        buffer.append(own)
        sources = tuple([(buffer[source], lag) for source, lag in row.sources])
        plan.append((own, sources, row.seconds))
        done = {source for source, _ in row.sources if last[source] == number}
        free += [buffer[source] for source in sorted(done)]
    return buffers, plan


def _run(
    plan: Sequence[_Step],
    views: Sequence[Floats],
    block: Sequence[Floats],
    spare: tuple[Floats, Floats],
) -> None:
    """Work a block out, row by row."""
    lagged, amount = spare
    add, latest = np.add, np.maximum
    for own, sources, seconds in plan:
        row = views[own]
        now: Floats | None = None
        for source, lag in sources:
            end = views[source]
            if isinstance(lag, Amount):
                taken = _amount(lag, block, amount)
                end = add(end, taken, row if now is None else lagged)
            elif lag:
                end = add(end, lag, row if now is None else lagged)
            now = end if now is None else latest(now, end, out=row)
        if now is None:
            now = views[0]
        if isinstance(seconds, Amount):
            add(now, _amount(seconds, block, amount), row)
        else:
            add(now, seconds, row)


def _amount(amount: Amount, block: Sequence[Floats], out: Floats) -> Floats:
    found = block[amount.columns[0]]
    if amount.scale != 1:
        found = np.multiply(found, amount.scale, out)
    for column in amount.columns[1:]:
        found = np.multiply(found, block[column], out)
    return found


@attrs.frozen(eq=False)
class Lags:
    """What lies between tasks.

    Attributes:
        gaps: Seconds between a place and the one before, where they vary.
        latency: Seconds from the end of a call to what it issued.

    """

    gaps: Mapping[int, Lag]
    latency: Lag


def rows_of(network: Network, seconds: Sequence[Lag], lags: Lags) -> list[Row]:
    """Return the rows of a network: all of its places.

    Args:
        network: The schedule.
        seconds: What each place takes.
        lags: What lies between tasks.

    """
    made: list[Row] = []
    waited = bytearray(len(network) + 1)
    columns = (network.previous, network.gap_s, network.issue, network.after)
    for place, (c, gap_s, q, after) in enumerate(zip(*columns, strict=True), 1):
        sources: list[Source] = []
        if c or not (q or after):
            sources.append((c, lags.gaps.get(place, gap_s) if c else 0.0))
        if q:
            sources.append((q, lags.latency))
        sources += [(j, 0.0) for j in after]
        for source, _ in sources:
            waited[source] = 1
        made.append(Row(tuple(sources), seconds[place]))
    ends = [place for place in range(1, len(network) + 1) if not waited[place]]
    made.append(Row(tuple([(place, 0.0) for place in ends]), 0.0))
    return made


def reduced(network: Network, seconds: Sequence[Lag]) -> list[Row]:
    """Return rows of the places alone whose seconds vary, and the ways between them.

    A way is kept if it may be the longest: those through another of the places, which
    takes no less than nothing, are no shorter (max-plus matrices: Baccelli et al.,
    1992).

    Args:
        network: The schedule.
        seconds: What each place takes.

    """
    stops = [place for place, s in enumerate(seconds) if isinstance(s, Amount)]
    number = {place: at for at, place in enumerate(stops, 1)}
    ways = np.full((len(network) + 1, len(stops) + 1), -np.inf)
    ways[0, 0] = 0.0
    incoming = np.full((len(stops) + 2, len(stops) + 1), -np.inf)
    columns = (network.previous, network.gap_s, network.issue, network.after)
    for place, (c, gap_s, q, after) in enumerate(zip(*columns, strict=True), 1):
        start = ways[c] + gap_s if gap_s else ways[c]
        if q:
            start = np.maximum(start, ways[q] + network.latency_s)
        for j in after:
            start = np.maximum(start, ways[j])
        own = number.get(place)
        if own is None:
            np.add(start, seconds[place], out=ways[place])  # type: ignore[arg-type]
        else:
            incoming[own] = start
            ways[place, own] = 0.0
    incoming[-1] = ways.max(axis=0)
    incoming[:, 0] = np.maximum(incoming[:, 0], 0.0)  # nothing starts before the step
    _prune(incoming)
    made: list[Row] = []
    for own in range(1, len(stops) + 2):
        lags = incoming[own]
        sources = [(at, float(lags[at])) for at in np.flatnonzero(lags > -np.inf)]
        taken: Lag = seconds[stops[own - 1]] if own <= len(stops) else 0.0
        made.append(Row(tuple([(int(at), lag) for at, lag in sources]), taken))
    return made


def _prune(incoming: Floats) -> None:
    """Drop the ways to each stop that are no longer than one through another stop."""
    lengths = incoming.copy()
    for own in range(2, len(incoming)):
        by = lengths[1:own, :own] + lengths[own, 1:own, None]
        through = by.max(axis=0)
        drop = through >= incoming[own, :own]
        incoming[own, :own][drop] = -np.inf


def solve_columns(
    network: Network,
    seconds: Sequence[Lag],
    columns: Sequence[Floats],
    count: int,
    lags: Lags | None = None,
) -> Floats:
    """Return the time of a schedule under each configuration.

    Args:
        network: The schedule.
        seconds: What each place takes, place 0 included.
        columns: What amounts are made of, one number a configuration.
        count: How many configurations there are.
        lags: What lies between tasks, where that varies.

    Returns:
        Seconds, one a configuration.

    """
    varying = sum(isinstance(s, Amount) for s in seconds)
    if lags is None and count > _MANY and varying * _FEW < len(network):
        return times_s(reduced(network, seconds), columns, count)
    lags = lags or Lags({}, network.latency_s)
    return times_s(rows_of(network, seconds, lags), columns, count)
