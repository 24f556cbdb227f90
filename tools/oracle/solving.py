"""Configurations of settings that have the same tasks, solved by arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from perfc.costmodels.kernels import Floats, Indices
from perfc.passes import timing
from perfc.tools.oracle.columns import Columns
from perfc.tools.oracle.costs import Costs
from perfc.tools.oracle.families import Family
from perfc.tools.oracle.host_fields import HostFields
from perfc.tools.oracle.places import Unit
from perfc.tools.oracle.solved_block import SolvedBlock

_US = 1e-6
_CELLS = 2**21
"""Numbers of a block of configurations, of all places and variants."""


class ProportionsVaryError(Exception):
    """A node of several tasks is timed whose proportions vary."""


@attrs.frozen(eq=False)
class Solving:
    """Configurations of settings that have one network.

    Attributes:
        family: The settings.
        rows: Configurations of each.
        host: Columns of constants of the target.
        given: The columns of the batch.

    """

    family: Family
    rows: Sequence[Indices]
    host: HostFields
    given: Columns
    _columns: list[Floats] = attrs.field(factory=list[Floats], init=False)

    @property
    def count(self) -> int:
        """How many configurations there are."""
        return sum(map(len, self.rows))

    def times_s(self) -> Floats:
        """Return the time under each configuration, in the order of the rows."""
        network = self.family.state.setting.step.network
        seconds, lags = self._plan
        return timing.solve_columns(network, seconds, self._columns, self.count, lags)

    def blocks(self, *, intervals: bool) -> Iterator[SolvedBlock]:
        """Yield the configurations in blocks, in the order of the rows.

        Args:
            intervals: Whether intervals are asked for.

        """
        assert self.family.costs is not None  # noqa: S101 - for types
        step, costs = self.family.state.setting.step, self.family.costs()
        seconds, lags = self._plan
        lags = lags or timing.Lags({}, step.network.latency_s)
        width = max(_CELLS // (6 * len(seconds)), 1)
        for first in range(0, self.count, width):
            block = [column[first : first + width] for column in self._columns]
            member = self._member[first : first + width]
            own = costs.take(member)
            errors = self._errors(own, member) if intervals else None
            taken = np.empty((len(seconds), len(member)))
            for row, lag in zip(taken, seconds, strict=True):
                row[:] = _amount(lag, block)
            gaps_s = [
                _amount(lags.gaps.get(place, gap_s), block)
                for place, gap_s in enumerate(step.network.gap_s, 1)
            ]
            between = timing.ManyLags(gaps_s, _amount(lags.latency, block))
            yield SolvedBlock.of(step, own, errors, taken, between)

    def _errors(self, costs: Costs, member: Indices) -> timing.ManyErrors:
        """Return the errors of tasks, at some members."""
        step = self.family.state.setting.step
        found = timing.sources(step.hosted[0].graph)
        states = self.family.states or (self.family.state,)
        hosted = [self.host.hosted(state.setting) for state in states]
        shared, own = np.array(
            [(h.sigma_shared, h.sigma_independent) for h in hosted]
        ).T
        if len(states) > 1:
            shared, own = shared[member], own[member]
        return timing.ManyErrors(
            found.host + 1,
            shared,
            own,
            found.device + 1,
            found.kernel,
            costs.shared,
            costs.own,
            costs.first,
        )

    @functools.cached_property
    def _member(self) -> Indices:
        """Member of each configuration."""
        counts = [*map(len, self.rows)]
        return np.repeat(np.arange(len(counts)), counts)

    @functools.cached_property
    def _plan(self) -> tuple[list[timing.Lag], timing.Lags | None]:
        """Seconds of each place, and what lies between, as amounts of columns.

        Raises:
            ProportionsVaryError: they have to be solved one by one.

        """
        state = self.family.state
        step = state.setting.step
        members = np.concatenate(self.rows)
        known: dict[int, timing.Amount] = {}
        seconds = [self._of_members(own, known) for own in self.family.seconds]
        lags: timing.Lags | None = None
        if (between := self.family.lags) is not None:
            gaps = {at: self._of_members(s, known) for at, s in between.gaps.items()}
            lags = timing.Lags(gaps, self._of_members(between.latency, known))
        first = len(self._columns)
        for values in self.host.columns.values():
            self._add(values, members)
        seconds = self.host.seconds(step, seconds, frozenset(state.stated), first)
        for column in self.given.durations:
            number = self._add(column.values, members)
            for unit in step.places.units(column.where):
                self._time(seconds, unit, number, sets=column.sets)
        return seconds, self.host.lags(step, first) or lags

    def _add(self, values: Floats, members: Indices) -> int:
        """Add a column of the chosen configurations; return its number."""
        if not values.ndim:
            chosen = np.full(len(members), float(values))
        elif len(self.rows) == 1 and len(members) == len(values):
            chosen = values  # all of them, in order
        else:
            chosen = values[members]
        self._columns.append(chosen)
        return len(self._columns) - 1

    def _of_members(
        self, own: float | Floats, known: dict[int, timing.Amount]
    ) -> timing.Lag:
        """Return a number as it is, and one a member as a column."""
        if not isinstance(own, np.ndarray):
            return own
        amount = known.get(id(own))
        if amount is None:
            amount = known[id(own)] = timing.Amount(1.0, (len(self._columns),))
            alone = len(own) == self.count
            self._columns.append(own if alone else own[self._member])
        return amount

    def _time(
        self, seconds: list[timing.Lag], unit: Unit, column: int, *, sets: bool
    ) -> None:
        """Time the tasks of a node by a column."""
        places = self.family.state.setting.step.network.places
        own = [places[task] for task in unit]
        now = [seconds[place] for place in own]
        amounts = [s if isinstance(s, timing.Amount) else timing.Amount(s) for s in now]
        if not sets:
            for place, amount in zip(own, amounts, strict=True):
                seconds[place] = amount.times(1.0, column)
            return
        if len(own) == 1:
            seconds[own[0]] = timing.Amount(_US, (column,))
            return
        if len({amount.columns for amount in amounts}) > 1:
            raise ProportionsVaryError
        total = float(np.sum([amount.scale for amount in amounts]))
        for place, amount in zip(own, amounts, strict=True):
            share = amount.scale / total if total else 1 / len(own)
            seconds[place] = timing.Amount(_US * share, (column,))


def _amount(lag: timing.Lag, block: Sequence[Floats]) -> float | Floats:
    """Return seconds in a block of configurations."""
    if not isinstance(lag, timing.Amount):
        return lag
    found: float | Floats = lag.scale
    for column in lag.columns:
        found = found * block[column]
    return found
