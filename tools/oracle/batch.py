"""Many configurations at once: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.ir import Diagnostic, Kernel, UsageError
from perfc.ir.support import Level, paused_collector
from perfc.passes.facts import LAUNCHES
from perfc.passes.timing import Amount, Lag, solve_columns
from perfc.tools.given import MAX_DIM, closest
from perfc.tools.oracle import edits
from perfc.tools.oracle.columns import Columns, edits_of, is_size
from perfc.tools.oracle.families import Family
from perfc.tools.oracle.host_fields import HOST_FIELDS, HostFields
from perfc.tools.oracle.many_sizes import FEWEST, ManySizes
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
"""Settings that are lowered one by one before their kernels are priced together."""
_SIZES = 2048
"""Sizes that are looked at together."""


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
        for family in self._families(settings):
            rows = [order[bounds[m] : bounds[m + 1]] for m in family.members]
            try:
                self._solve(family, rows, host, found)
            except _ProportionsVaryError:
                own = [settings[m] for m in family.members]
                for state, of_one in zip(self._states(own), rows, strict=True):
                    alone = Family.of_states([state], [0])
                    self._solve(alone, [of_one], host, found)
        return found * 1e6

    def _families(self, settings: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
        """Yield the settings by their tasks: of many sizes together, where they can."""
        groups: dict[tuple[tuple[str, Any], ...], list[int]] = {}
        for number, setting in enumerate(settings):
            rest = [(n, value) for n, value in setting.items() if not is_size(n)]
            groups.setdefault(tuple(rest), []).append(number)
        apart: list[int] = []
        for others, numbers in groups.items():
            if len(numbers) < FEWEST:
                apart += numbers
                continue
            for first in range(0, len(numbers), _SIZES):
                members = numbers[first : first + _SIZES]
                chosen = [settings[number] for number in members]
                together, left = self._together(dict(others), chosen)
                for family in together:
                    of_all = [members[m] for m in family.members]
                    yield attrs.evolve(family, members=of_all)
                apart += [members[m] for m in left]
        apart.sort()
        for first in range(0, len(apart), _CHUNK):
            chunk = apart[first : first + _CHUNK]
            yield from self._apart([settings[number] for number in chunk], chunk)

    def _together(
        self, others: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Family], list[int]]:
        """Return families of the settings of many sizes, and which are in none."""
        every = list(range(len(settings)))
        sizes = {
            name: np.array([setting[name] for setting in settings])
            for name in settings[0]
            if is_size(name)
        }
        if not sizes or not all(map(_are_sizes, sizes.values())):
            return [], every  # what is no size raises, one by one
        base = self.state.setting
        for edit in edits_of(others):
            assert not isinstance(edit, edits.Duration)  # noqa: S101 - for types
            base = base.after(edit)
        many = ManySizes(self.state, base, sizes)
        found = many.families()
        self.remarks += [
            Diagnostic(Level.NOTE, "one-by-one", remark) for remark in many.remarks
        ]
        return found

    def _apart(
        self, settings: Sequence[Mapping[str, Any]], members: Sequence[int]
    ) -> Iterator[Family]:
        """Yield the settings, lowered one by one, by their network."""
        states = self._states(settings)
        groups: dict[int, list[int]] = {}
        for at, state in enumerate(states):
            step = state.setting.step
            key = -1 - at if step.shares else id(step.network)
            groups.setdefault(key, []).append(at)
        for own in groups.values():
            chosen = [states[at] for at in own]
            yield Family.of_states(chosen, [members[at] for at in own])

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
        family: Family,
        rows: Sequence[Indices],
        host: HostFields,
        found: Floats,
    ) -> None:
        """Find the times of the configurations of settings that have one network.

        Raises:
            _ProportionsVaryError: they have to be solved one by one.

        """
        state = family.state
        if state.setting.step.shares:
            self._remark("tasks slow each other down (contention)")
            self._one_by_one(state, rows[0], host, found)
            return
        members = np.concatenate(rows)
        try:
            found[members] = _Solving(family, rows, host, self.columns).times_s()
        except _ProportionsVaryError:
            if len(family.states) != 1:
                raise
            self._remark("a node of several tasks has parts that vary apart")
            self._one_by_one(state, rows[0], host, found)

    def _one_by_one(
        self, state: State, rows: Indices, host: HostFields, found: Floats
    ) -> None:
        for configuration in rows.tolist():
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


def _are_sizes(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "i" and 1 <= values.min() <= values.max() <= MAX_DIM


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

    def times_s(self) -> Floats:
        """Return the time under each configuration, in the order of the rows."""
        state = self.family.state
        step = state.setting.step
        members = np.concatenate(self.rows)
        seconds = self._seconds()
        first = len(self._columns)
        for values in self.host.columns.values():
            self._add(values, members)
        seconds = self.host.seconds(step, seconds, frozenset(state.stated), first)
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
        """Return the seconds of each place: a number, or a column if members differ."""
        counts = [*map(len, self.rows)]
        member = np.repeat(np.arange(len(counts)), counts)
        known: dict[int, int] = {}
        made: list[Lag] = []
        for own in self.family.seconds:
            if not isinstance(own, np.ndarray):
                made.append(own)
                continue
            number = known.get(id(own))
            if number is None:
                number = known[id(own)] = len(self._columns)
                self._columns.append(own if len(own) == len(member) else own[member])
            made.append(Amount(1.0, (number,)))
        return made

    def _time(self, seconds: list[Lag], unit: Unit, column: int, *, sets: bool) -> None:
        """Time the tasks of a node by a column."""
        places = self.family.state.setting.step.network.places
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
