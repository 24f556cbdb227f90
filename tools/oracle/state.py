"""An oracle between two edits: a setting, and what is set of its durations."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import attrs

from perfc.passes.timing import Stretch, Ways
from perfc.tools import edits
from perfc.tools.oracle.places import Unit
from perfc.tools.oracle.setting import Setting
from perfc.tools.reports import Report

_US = 1e-6
"""Seconds in a microsecond."""

_FEW = 8
"""How many times as many places a network has as a stretch of neighbours at most:
longer ones are swept, as all others behind them."""

_NOTHING: Mapping[int, float] = {}


@attrs.frozen(eq=False)
class State:
    """A setting, with the durations of some tasks set.

    Attributes:
        setting: The model, the target and the passes.
        stated: Seconds that are set, by flat number of the task.

    """

    setting: Setting
    stated: Mapping[int, float] = _NOTHING
    _single: dict[str, int] = attrs.field(
        factory=dict[str, int], init=False, repr=False
    )
    """Place of the one task of a name; 0 for a name of several, or of none."""
    _stretches: dict[str, Stretch | None] = attrs.field(
        factory=dict[str, "Stretch | None"], init=False, repr=False
    )
    """Places that the tasks of a name lie between, if there are few."""

    def __reduce__(self) -> tuple[object, ...]:
        """Leave out what was worked out."""
        return type(self), (self.setting, self.stated)

    @functools.cached_property
    def time_s(self) -> float:
        """Seconds of the step."""
        step = self.setting.step
        if step.shares:
            return step.time_s(self.stated)
        return max(self.ends_s)

    @functools.cached_property
    def seconds(self) -> list[float]:
        """Seconds of each place of the network."""
        step = self.setting.step
        if not self.stated:
            return step.seconds
        seconds, places = step.seconds.copy(), step.network.places
        for task, taken_s in self.stated.items():
            seconds[places[task]] = taken_s
        return seconds

    @functools.cached_property
    def ends_s(self) -> list[float]:
        """When each place of the network ends."""
        step = self.setting.step
        if not self.stated:
            return step.ends_s
        places = step.network.places
        first = min(map(places.__getitem__, self.stated))
        return step.network.ends_s(self.seconds, step.ends_s, first)

    @functools.cached_property
    def ways(self) -> Ways:
        """The longest ways with respect to each place."""
        return self.setting.step.network.ways(self.seconds, self.ends_s)

    def report(self) -> Report:
        """Return the report of the step."""
        return self.setting.step.report(self.stated)

    def quick_s(self, edit: edits.Duration) -> float | None:
        """Return the seconds of the step with few neighbouring tasks timed otherwise.

        None if the edit is about others.
        """
        place = self._single.get(edit.where)
        if place is None:
            # The place of the one task of a name; 0 for one of several or none.
            step = self.setting.step
            tasks = [task for unit in step.places.units(edit.where) for task in unit]
            place = self._single.setdefault(
                edit.where,
                0 if step.shares or len(tasks) != 1 else step.network.places[tasks[0]],
            )
        if not place:
            # The seconds of the step with tasks that lie near each other timed.
            where = edit.where
            if where not in self._stretches:
                self._stretches[where] = self._stretch(where)
            stretch = self._stretches[where]
            if stretch is None:
                return None
            first, places = stretch.places[0], self.setting.step.network.places
            seconds = self.seconds[first : stretch.places.stop]
            for task, taken_s in self._stated(edit).items():
                seconds[places[task] - first] = taken_s
            return stretch.time_s(seconds)
        ways = self.ways
        if edit.us is not None:
            return ways.time_s(place, edit.us * _US)
        factor: float = edit.factor  # type: ignore[assignment] # one of the two
        return ways.time_s(place, self.seconds[place] * factor)

    def _stretch(self, where: str) -> Stretch | None:
        """Return the places that the tasks of a name lie between, if there are few."""
        step = self.setting.step
        units = step.places.units(where)
        if step.shares or not units:
            return None
        network = step.network
        places = [network.places[task] for unit in units for task in unit]
        between = range(min(places), max(places) + 1)
        if len(between) * _FEW > len(network):
            return None
        return network.stretch(between, self.ends_s, self.ways)

    def after(self, asked: Sequence[edits.Edit]) -> State:
        """Return the state after edits, in order."""
        state = self
        for edit in asked:
            if isinstance(edit, edits.Duration):
                state = state.timed(edit)
            elif isinstance(edit, edits.Replace) and state.is_one_kernel(edit.where):
                state = state.timed(edits.Duration(edit.where, us=edit.us))
            else:
                state = state.moved_to(state.setting.after(edit))
        return state

    def is_one_kernel(self, where: str) -> bool:
        """Whether a name stands for one task, whose replacement is a duration."""
        units = self.setting.step.places.units(where)
        return len(units) == 1 and len(units[0]) == 1

    def timed(self, edit: edits.Duration) -> State:
        """Return the state with what an edit says of durations."""
        return State(self.setting, {**self.stated, **self._stated(edit)})

    def _stated(self, edit: edits.Duration) -> dict[int, float]:
        """Return the seconds of the tasks that an edit is about."""
        stated: dict[int, float] = {}
        for unit in self.setting.step.places.units(edit.where):
            stated.update(self._times(unit, edit))
        return stated

    def _times(self, unit: Unit, edit: edits.Duration) -> dict[int, float]:
        """Return the seconds of the tasks of a node under an edit."""
        duration_s, stated = self.setting.step.duration_s, self.stated
        seconds = [stated.get(task, duration_s[task]) for task in unit]
        if edit.factor is not None:
            return {t: s * edit.factor for t, s in zip(unit, seconds, strict=True)}
        asked_s: float = edit.us * _US  # type: ignore[operator] # one of the two
        if len(unit) == 1:
            return {unit[0]: asked_s}
        total_s = math.fsum(seconds)
        if not total_s:
            return {task: asked_s / len(unit) for task in unit}
        return {t: asked_s * (s / total_s) for t, s in zip(unit, seconds, strict=True)}

    def moved_to(self, setting: Setting) -> State:
        """Return the state in another setting: what was set stays set.

        What is no more, as of a node that was fused, is forgotten.
        """
        if not self.stated:
            return State(setting)
        keys, places = self.setting.step.places.keys, setting.step.places
        stated: dict[int, float] = {}
        for task, taken_s in self.stated.items():
            now = places.task(keys[task])
            if now is not None:
                stated[now] = taken_s
        return State(setting, stated)
