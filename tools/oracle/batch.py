"""Many configurations at once: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target
from perfc.costmodels.kernels import Floats, Indices
from perfc.ir import Diagnostic, Kernel, UsageError
from perfc.ir.support import US, Level, paused_collector
from perfc.passes.facts import LAUNCHES
from perfc.tools import edits
from perfc.tools.given import MAX_DIM, closest
from perfc.tools.oracle.columns import Columns, edits_of, is_size
from perfc.tools.oracle.families import Family
from perfc.tools.oracle.host_fields import HOST_FIELDS, HostFields
from perfc.tools.oracle.many_sizes import FEWEST, ManySizes
from perfc.tools.oracle.setting import Setting
from perfc.tools.oracle.solving import ProportionsVaryError, Solving
from perfc.tools.oracle.state import State
from perfc.tools.oracle.step import Step, lowered
from perfc.tools.reports import Report

TIME = "time_us"
P05, P95 = "time_us_p05", "time_us_p95"
ACTIVE = "gpu_active_us"
PEAK = "peak_memory_bytes"

WANTED: Mapping[str, Callable[[Report], float]] = {
    TIME: lambda report: report.time_us,
    P05: lambda report: report.interval_us[0],
    P95: lambda report: report.interval_us[1],
    ACTIVE: lambda report: float(report.summary["gpu_active_us"]),
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


def batch(state: State, given: object, want: object) -> Answers:
    """Return times, and more, of a step under each configuration.

    Args:
        state: The step.
        given: Columns by name.
        want: Names of what is asked for.

    """
    columns, wanted = Columns.read(given), _wanted(want)
    asking = _Asking(state, columns)
    answers = Answers()
    with paused_collector():
        answers.update(asking.found(wanted))
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
        by_host: Whether constants of the host may be columns.
        remarks: How configurations were looked at.

    """

    state: State
    columns: Columns
    by_host: bool = True
    remarks: list[Diagnostic] = attrs.field(factory=list[Diagnostic], init=False)

    def found(self, wanted: Sequence[str]) -> dict[str, Floats]:
        """Return the wanted numbers under each configuration."""
        found = {name: np.empty(self.columns.count) for name in wanted}
        host, rest = self._split()
        settings, which = rest.distinct()
        order = np.argsort(which, kind="stable")
        bounds = np.searchsorted(which[order], np.arange(len(settings) + 1))
        asking = self._beside_fastest(host)
        capped: list[Indices] = []
        for family in asking.families(settings):
            rows = [order[bounds[m] : bounds[m + 1]] for m in family.members]
            if host.columns and any(one.setting.step.capped for one in family.states):
                capped += rows
                continue
            own = [settings[m] for m in family.members]
            try:
                asking.solve(family, own, rows, host, found)
            except ProportionsVaryError:
                each = zip(asking.states(own), own, rows, strict=True)
                for state, setting, of_one in each:
                    alone = Family.of_states([state], [0])
                    asking.solve(alone, [setting], [of_one], host, found)
        if asking is not self:
            self.remarks += asking.remarks
        if capped:
            self._beside_each(np.sort(np.concatenate(capped)), found)
        return found

    def _beside_fastest(self, host: HostFields) -> _Asking:
        """Return the batch on the fastest of some hosts, where that may matter.

        A board whose power is capped draws more the less it waits: what stays within
        the cap beside the fastest host does so beside all.
        """
        if host.fastest is None or self.state.setting.run.target.power is None:
            return self
        return attrs.evolve(self, state=self.state.after([host.fastest]))

    def _beside_each(self, rows: Indices, found: Mapping[str, Floats]) -> None:
        """Find what is wanted of configurations whose prices the host may change."""
        self._remark("the cap of the board's power holds kernels down by their host")
        asking = attrs.evolve(self, columns=self.columns.take(rows), by_host=False)
        for name, values in asking.found([*found]).items():
            found[name][rows] = values
        self.remarks += asking.remarks

    def families(self, settings: Sequence[Mapping[str, Any]]) -> Iterator[Family]:
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
        which = np.zeros(len(settings), dtype=np.intp)
        many = ManySizes(self.state, [base], which, sizes)
        found = many.families()
        self.remarks += [
            Diagnostic(Level.NOTE, "one-by-one", remark) for remark in many.remarks
        ]
        return found

    def _apart(
        self, settings: Sequence[Mapping[str, Any]], members: Sequence[int]
    ) -> Iterator[Family]:
        """Yield the settings, lowered one by one, by their network."""
        states = self.states(settings)
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
        alone = self.by_host and not any("." in name for name in others)
        host = HostFields.read(self.state, fields) if alone else None
        if host is None:
            return HostFields({}), self.columns
        return host, attrs.evolve(self.columns, settings=others)

    def states(self, settings: Sequence[Mapping[str, Any]]) -> list[State]:
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

    def solve(
        self,
        family: Family,
        settings: Sequence[Mapping[str, Any]],
        rows: Sequence[Indices],
        host: HostFields,
        found: Mapping[str, Floats],
    ) -> None:
        """Find what is wanted of the configurations of settings with one network.

        Raises:
            ProportionsVaryError: they have to be solved one by one.

        """
        apart = _Apart(self, family, settings, rows, host)
        others = dict(found)
        if PEAK in others:
            _find_peaks(apart, others.pop(PEAK))
        if not others:
            return
        if family.state.setting.step.shares:
            self._remark("tasks slow each other down (contention)")
            apart.find(others)
            return
        solving = Solving(family, rows, host, self.columns)
        try:
            if TIME in others:
                times_s = solving.times_s()
                others.pop(TIME)[np.concatenate(rows)] = times_s * US
            self._find(solving, apart, others)
        except ProportionsVaryError:
            if len(family.states) != 1:
                raise
            self._remark("a node of several tasks has parts that vary apart")
            apart.find({name: found[name] for name in found if name != PEAK})

    def _find(
        self, solving: Solving, apart: _Apart, found: Mapping[str, Floats]
    ) -> None:
        """Find intervals, and how long the device works."""
        if not found:
            return
        if solving.family.costs is None:
            self._remark(f"{' and '.join(found)}: ranks wait for each other")
            apart.find(found)
            return
        intervals = [name for name in (P05, P95) if name in found]
        left = np.concatenate(solving.rows)
        for block in solving.blocks(intervals=bool(intervals)):
            own, left = np.split(left, [len(block.times_s)])
            if ACTIVE in found:
                found[ACTIVE][own] = block.active_s * US
            if intervals:
                low_s, high_s = block.intervals_s
                both: Mapping[str, Floats] = {P05: low_s, P95: high_s}
                for name in intervals:
                    found[name][own] = both[name] * US

    def asked(self, configuration: int, host: HostFields) -> list[edits.Edit]:
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

    def _remark(self, why: str) -> None:
        message = f"configurations are looked at one by one: {why}"
        self.remarks.append(Diagnostic(Level.NOTE, "one-by-one", message))


@attrs.frozen(eq=False)
class _Apart:
    """Configurations of one network, to be looked at one by one.

    Attributes:
        asking: The batch.
        family: Their settings, lowered.
        settings: Their settings.
        rows: Configurations of each.
        host: Columns of constants of the target.

    """

    asking: _Asking
    family: Family
    settings: Sequence[Mapping[str, Any]]
    rows: Sequence[Indices]
    host: HostFields

    def state(self, member: int) -> State:
        """Return the state of a setting."""
        if self.family.states:
            return self.family.states[member]
        return self.asking.states([self.settings[member]])[0]

    def find(self, found: Mapping[str, Floats]) -> None:
        """Find what is wanted of all configurations."""
        for member, rows in enumerate(self.rows):
            state = self.state(member)
            numbers: list[int] = rows.tolist()
            for configuration in numbers:
                now = state.after(self.asking.asked(configuration, self.host))
                report = None if [*found] == [TIME] else now.report()
                for name, values in found.items():
                    read = now.time_s * US if report is None else WANTED[name](report)
                    values[configuration] = read


def _find_peaks(apart: _Apart, found: Floats) -> None:
    """Find the peak of the memory under each setting: no duration changes it."""
    peaks = apart.family.peaks()
    if peaks is None:
        read = WANTED[PEAK]
        members = range(len(apart.rows))
        peaks = np.array([read(apart.state(m).report()) for m in members])
    for rows, peak in zip(apart.rows, peaks.tolist(), strict=True):
        found[rows] = peak


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
