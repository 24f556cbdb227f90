"""Many configurations at once: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.ir import Diagnostic, Kernel, UsageError
from perfc.ir.support import Level, paused_collector
from perfc.passes.facts import LAUNCHES
from perfc.passes.timing import Amount, Lag, solve_columns
from perfc.tools.given import closest
from perfc.tools.oracle import edits
from perfc.tools.oracle.columns import Columns, edits_of
from perfc.tools.oracle.host_fields import HOST_FIELDS, HostFields
from perfc.tools.oracle.places import Unit
from perfc.tools.oracle.setting import Setting
from perfc.tools.oracle.state import State
from perfc.tools.oracle.step import Step, lowered
from perfc.tools.reports import Report

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

_US = 1e-6
TIME = "time_us"
PEAK = "peak_memory_bytes"

WANTED: Mapping[str, Callable[[Report], float]] = {
    TIME: lambda report: report.time_us,
    "time_us_p05": lambda report: report.interval_us[0],
    "time_us_p95": lambda report: report.interval_us[1],
    "gpu_active_us": lambda report: float(report.summary["gpu_active_us"]),
    PEAK: lambda report: float(report.memory_use.peak_bytes),
}
"""What a batch answers, and where a report has it."""

_CHUNK = 256
"""Settings that are lowered before their kernels are priced together."""


class Answers(dict[str, Floats]):
    """What a batch answers: arrays by name, one number a configuration.

    Attributes:
        diagnostics: How configurations were looked at, where not all at once.

    """

    diagnostics: tuple[Diagnostic, ...] = ()


class _ProportionsVaryError(Exception):
    """A node of several tasks is timed whose proportions vary."""


def batch(state: State, given: object, want: object) -> Answers:
    """Return times, and more, of a step under each configuration.

    Args:
        state: The step.
        given: Columns by name.
        want: Names of what is asked for.

    Raises:
        UsageError: a column or a wanted name means nothing.
        PerfcError: as `perfc.analyze` of a configuration does.

    """
    columns, wanted = Columns.read(given), _wanted(want)
    asking = _Asking(state, columns)
    answers = Answers()
    with paused_collector():
        for name in wanted:
            answers[name] = asking.times_us() if name == TIME else asking.others(name)
    answers.diagnostics = tuple(dict.fromkeys(asking.remarks))
    return answers


def _wanted(want: object) -> tuple[str, ...]:
    several = isinstance(want, tuple | list | set | frozenset | dict)
    listed = list(cast("Iterable[object]", want)) if several else [want]
    names = tuple(map(str, listed))
    for name in names:
        if name not in WANTED:
            known = ", ".join(WANTED)
            hint = closest(name, WANTED)
            msg = f"want={name!r} of Oracle.batch is none of {known}{hint}"
            raise UsageError(msg)
    return names


@attrs.define(eq=False)
class _Asking:
    """A batch that is being answered.

    Attributes:
        state: The step.
        columns: What varies.
        remarks: How configurations were looked at.

    """

    state: State
    columns: Columns
    remarks: list[Diagnostic] = attrs.field(factory=list[Diagnostic], init=False)

    def times_us(self) -> Floats:
        """Return the time under each configuration."""
        found = np.empty(self.columns.count)
        host, rest = self._split()
        settings, which = rest.distinct()
        order = np.argsort(which, kind="stable")
        bounds = np.searchsorted(which[order], np.arange(len(settings) + 1))
        for first in range(0, len(settings), _CHUNK):
            states = self._states(settings[first : first + _CHUNK])
            groups: dict[int, list[int]] = {}
            for at, state in enumerate(states):
                step = state.setting.step
                key = -1 - at if step.shares else id(step.network)
                groups.setdefault(key, []).append(at)
            for members in groups.values():
                rows = [
                    order[slice(*bounds[[first + m, first + m + 1]])] for m in members
                ]
                chosen = [states[m] for m in members]
                self._solve(chosen, rows, host, found)
        return found * 1e6

    def _split(self) -> tuple[HostFields, Columns]:
        """Part the fields that are columns of numbers from those that are settings."""
        settings = self.columns.settings
        fields = {n: settings[n] for n in settings if n in HOST_FIELDS}
        others = {n: settings[n] for n in settings if n not in fields}
        alone = not any("." in name for name in others)
        host = HostFields.read(self.state, fields) if alone else None
        if host is None:
            return HostFields({}), self.columns
        return host, attrs.evolve(self.columns, settings=others)

    def _states(self, settings: Sequence[Mapping[str, Any]]) -> list[State]:
        """Return the state of each setting, kernels priced all together."""
        if settings == [{}]:
            return [self.state]
        made: list[Setting] = []
        for setting in settings:
            now = self.state.setting
            for edit in edits_of(setting):
                assert not isinstance(edit, edits.Duration)  # noqa: S101 - for types
                now = now.made(edit)
            made.append(now)
        _price_together(made)
        return [self.state.moved_to(setting) for setting in made]

    def _solve(
        self,
        states: Sequence[State],
        rows: Sequence[Indices],
        host: HostFields,
        found: Floats,
    ) -> None:
        """Find the times of the configurations of states that have one network."""
        if states[0].setting.step.shares:
            self._remark("tasks slow each other down (contention)")
            self._one_by_one(states, rows, host, found)
            return
        members = np.concatenate(rows)
        try:
            found[members] = _Solving(states, rows, host, self.columns).times_s()
        except _ProportionsVaryError:
            if len(states) == 1:
                self._remark("a node of several tasks has parts that vary apart")
                self._one_by_one(states, rows, host, found)
                return
            for state, own in zip(states, rows, strict=True):
                self._solve([state], [own], host, found)

    def _one_by_one(
        self,
        states: Sequence[State],
        rows: Sequence[Indices],
        host: HostFields,
        found: Floats,
    ) -> None:
        for state, members in zip(states, rows, strict=True):
            for configuration in members.tolist():
                asked = self._asked(configuration, host)
                found[configuration] = state.after(asked).time_s

    def _asked(self, configuration: int, host: HostFields) -> list[edits.Edit]:
        """Return the edits of one configuration that are no setting."""
        asked: list[edits.Edit] = []
        if host.columns:
            fields = {
                name: values.item(configuration if values.ndim else 0)
                for name, values in self.columns.settings.items()
                if name in HOST_FIELDS
            }
            asked.append(edits.Target(**fields))
        for column in self.columns.durations:
            values = column.values
            amount = values.item(configuration if values.ndim else 0)
            named: dict[str, float] = {"us" if column.sets else "factor": amount}
            asked.append(edits.Duration(column.where, **named))
        return asked

    def others(self, name: str) -> Floats:
        """Return anything but the time under each configuration, one by one."""
        found = np.empty(self.columns.count)
        settings, which = self.columns.distinct()
        states = self._states(settings)
        read = WANTED[name]
        if name == PEAK:  # which no duration changes
            peaks = [read(state.report()) for state in states]
            return np.array(peaks)[which]
        self._remark(f"{name} needs the critical path")
        numbers: list[int] = which.tolist()
        for configuration, at in enumerate(numbers):
            asked = self._asked(configuration, HostFields({}))
            found[configuration] = read(states[at].after(asked).report())
        return found

    def _remark(self, why: str) -> None:
        message = f"configurations are looked at one by one: {why}"
        self.remarks.append(Diagnostic(Level.NOTE, "one-by-one", message))


def _price_together(settings: Sequence[Setting]) -> None:
    """Lower settings, and price the kernels of all for each target in one table."""
    if len(settings) == 1:
        return
    launches = [lowered(setting.run) for setting in settings]
    kernels: dict[str, tuple[Target, list[Kernel]]] = {}
    for setting, found in zip(settings, launches, strict=True):
        target = setting.run.target
        _, all_kernels = kernels.setdefault(target.spec_sha256, (target, []))
        for graph in found.get(LAUNCHES):
            all_kernels += graph.kernels
    settings[0].memory.note(kernels.values())
    for setting, found in zip(settings, launches, strict=True):
        setting.keep(Step.priced(setting.run, setting.memory, found))


@attrs.frozen(eq=False)
class _Solving:
    """Configurations of states that have one network.

    Attributes:
        states: The states.
        rows: Configurations of each.
        host: Columns of constants of the target.
        given: The columns of the batch.

    """

    states: Sequence[State]
    rows: Sequence[Indices]
    host: HostFields
    given: Columns
    _columns: list[Floats] = attrs.field(factory=list[Floats], init=False)

    def times_s(self) -> Floats:
        """Return the time under each configuration, in the order of the rows."""
        step = self.states[0].setting.step
        members = np.concatenate(self.rows)
        seconds = self._seconds()
        first = len(self._columns)
        for values in self.host.columns.values():
            self._add(values, members)
        stated = frozenset(self.states[0].stated)
        seconds = self.host.seconds(step, seconds, stated, first)
        for column in self.given.durations:
            number = self._add(column.values, members)
            for unit in step.places.units(column.where):
                self._time(seconds, unit, number, sets=column.sets)
        return solve_columns(
            step.network,
            seconds,
            self._columns,
            len(members),
            self.host.lags(step, first),
        )

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

    def _seconds(self) -> list[Lag]:
        """Return the seconds of each place: a number, or a column if states differ."""
        if len(self.states) == 1:
            return [*self.states[0].seconds]
        table = np.array([state.seconds for state in self.states]).T
        state = np.repeat(np.arange(len(self.rows)), list(map(len, self.rows)))
        known: dict[bytes, int] = {}
        made: list[Lag] = []
        varies = (table != table[:, :1]).any(axis=1)
        for own, differs in zip(table, varies.tolist(), strict=True):
            if not differs:
                made.append(float(own[0]))
                continue
            number = known.get(key := own.tobytes())
            if number is None:
                number = known[key] = len(self._columns)
                self._columns.append(own if len(own) == len(state) else own[state])
            made.append(Amount(1.0, (number,)))
        return made

    def _time(self, seconds: list[Lag], unit: Unit, column: int, *, sets: bool) -> None:
        """Time the tasks of a node by a column."""
        places = self.states[0].setting.step.network.places
        own = [places[task] for task in unit]
        now = [seconds[place] for place in own]
        amounts = [s if isinstance(s, Amount) else Amount(s) for s in now]
        if not sets:
            for place, amount in zip(own, amounts, strict=True):
                seconds[place] = amount.times(1.0, column)
            return
        if len(own) == 1:
            seconds[own[0]] = Amount(_US, (column,))
            return
        if len({amount.columns for amount in amounts}) > 1:
            raise _ProportionsVaryError
        total = float(np.sum([amount.scale for amount in amounts]))
        for place, amount in zip(own, amounts, strict=True):
            share = amount.scale / total if total else 1 / len(own)
            seconds[place] = Amount(_US * share, (column,))
