"""How the time follows the fields of a target's sheet.

Cost models are told a whole target, so their slopes are differences of prices: of every
kernel, with a field a little larger and a little smaller, nothing else being worked out
again. What the critical paths make of those is exact. A price may be the least of a
menu, as of tiles of a GEMM; the slope is that of the piece that is taken, and where
another piece is within one percent of the field, the slope says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs
import numpy as np

from perfc.costmodels import Target
from perfc.costmodels.kernels import Floats, Indices
from perfc.costmodels.sheets import FIELDS, is_of_time
from perfc.ir import PerfcError
from perfc.passes.manager import Analysis
from perfc.tools import edits
from perfc.tools.oracle.memory import Memory
from perfc.tools.oracle.solved import Solved, lags_s
from perfc.tools.oracle.step import Step, lowered
from perfc.tools.reports import Slope

_SPEED = "host.speed"
"""A field that a sheet may leave out: its host is then as fast as its profile."""

_NUMBERED = ("generation", "node.gpus")
"""Fields that number what there is, not how much of it."""

_STEP = 1e-4
"""Share of a field that it is changed by for its slope."""
_NEAR = 1e-2
"""Share within which another piece is looked for."""
_ROUGH = 1e-2
"""Slopes of a price that differ by more are of two pieces."""
_LEAST = 1e-9
"""Slopes below are what prices are rounded by."""
_SEEN = 1e-3
"""Share of the time by which pieces have to differ to be worth a remark."""


def slopes_of_fields(solved: Solved) -> Iterator[Slope]:
    """Yield the slope of each number of the sheet that changes the time."""
    target = solved.step.run.target
    solved.state.setting.check_source()
    scratch, prices = Memory(), _Prices.of(solved)
    for name, value in {_SPEED: 1.0, **target.fields}.items():
        if isinstance(value, str) or not value or name.endswith(_NUMBERED):
            continue
        if not is_of_time(name):
            continue
        field = _Field(solved, scratch, name, value)
        found = _whole(field) if FIELDS[name].whole else prices.slope(field)
        if found is not None:
            yield found


@attrs.frozen(eq=False)
class _Field:
    """A field of the sheet.

    Attributes:
        solved: The step.
        memory: Targets and prices of one look, which an oracle need not keep.
        name: What it is called.
        value: Its number.

    """

    solved: Solved
    memory: Memory
    name: str
    value: float

    def target(self, value: float) -> Target | None:
        """Return the target with another number; None if the sheet cannot say so."""
        setting = self.solved.state.setting
        try:
            fields = dict(edits.Target(**{self.name: value}).fields)
            overrides = {**setting.overrides, **fields}
            return self.memory.target(setting.source, overrides)
        except PerfcError:
            return None

    def slope(
        self, up: float | None, down: float | None, remarks: list[str]
    ) -> Slope | None:
        """Return the slope from those above and below the number.

        Args:
            up: The one above; None if the sheet allows nothing there.
            down: The one below.
            remarks: What there is to say about it.

        """
        if up is None or down is None:
            refused = "larger" if up is None else "smaller"
            remarks = [*remarks, f"the sheet allows nothing {refused}"]
        sides = [side for side in (up, down) if side is not None]
        if not sides or max(map(abs, sides)) < _LEAST:
            return None
        # In the direction of the faster step first; a time that grows gets slower.
        both = (sides[0], sides[-1])
        faster, slower = both if math.fsum(both) <= 0 else reversed(both)
        said = "; ".join(remarks)
        return Slope("target", self.name, faster, slower, said, self._moves())

    def _moves(self) -> tuple[str, ...]:
        """Return the fields that follow it."""
        before = self.solved.step.run.target.fields
        step = 1 if FIELDS[self.name].whole else self.value * _STEP
        changed = self.target(self.value + step) or self.target(self.value - step)
        after = before if changed is None else changed.fields
        return tuple(
            name
            for name, value in before.items()
            if name != self.name and after.get(name) != value
        )


def _whole(field: _Field) -> Slope | None:
    """Return the slope of what is counted: from one more, and from one less."""
    state, before_s = field.solved.state, field.solved.ways.time_s
    slopes: list[float | None] = []
    for number in (field.value + 1, field.value - 1):
        if field.target(number) is None:
            slopes.append(None)
            continue
        forgetful = attrs.evolve(state.setting, memory=field.memory)
        setting = forgetful.made(edits.Target(**{field.name: number}))
        time_s = state.moved_to(setting).time_s
        slopes.append(math.log(time_s / before_s) / math.log(number / field.value))
    up, down = slopes
    return field.slope(up, down, ["one more, one less"])


@attrs.frozen(eq=False)
class _Prices:
    """Prices of a step under other fields of its target.

    Attributes:
        solved: The step.
        launches: Its launches, before anything is priced.
        before: Seconds of its tasks, and of each kind of lag behind them.

    """

    solved: Solved
    launches: Analysis
    before: Floats

    @classmethod
    def of(cls, solved: Solved) -> _Prices:
        """Return those of a step as it stands."""
        step = solved.step
        before = np.array([*step.duration_s, *solved.lag_s])
        return cls(solved, lowered(step.run), before)

    def slope(self, field: _Field) -> Slope | None:
        """Return the slope of a field; None if nothing follows it."""
        far = [self._changed(field, share) for share in (_NEAR, -_NEAR)]
        if all(one is not None and not one.any() for one in far):
            return None
        near = [self._changed(field, share) for share in (_STEP, -_STEP)]
        sides = [one for one in near if one is not None]
        if not sides:
            return None
        right, left = sides[0], sides[-1]
        middle = (right + left) / 2
        rough = _ROUGH * self.before
        smooth = np.abs(right - left) <= rough
        ahead, behind = (middle if one is None else one for one in far)
        up = np.where(smooth, middle, ahead)
        down = np.where(smooth, middle, behind)
        # Of one smooth piece both secants differ from the slope by as much.
        bends = np.where(smooth, np.abs(ahead + behind - 2 * middle), ahead - behind)
        bends = np.where(np.abs(bends) > rough, np.abs(bends), 0.0)
        remarks = self._remarks(bends) if len(sides) > 1 else []
        return field.slope(
            None if near[0] is None else self._along(up)[1],
            None if near[1] is None else self._along(down)[0],
            remarks,
        )

    def _changed(self, field: _Field, share: float) -> Floats | None:
        """Return by how much tasks and lags change, for each unit of the share.

        None if the sheet cannot say so.
        """
        target = field.target(field.value * (1 + share))
        if target is None:
            return None
        step = self.solved.step
        run = attrs.evolve(step.run, target=target)
        priced = Step.priced(run, field.memory, self.launches)
        after = np.array([*priced.duration_s, *lags_s(target)])
        found: Floats = (after - self.before) / share
        found[[*self.solved.state.stated]] = 0.0
        return found

    def _along(self, changed: Floats) -> tuple[float, float]:
        solved, count = self.solved, len(self.solved.step.duration_s)
        own = np.append(changed[:count], 0.0)[solved.tasks] * solved.slowed
        lags = changed[count:]
        most, least = solved.ways.spans(own[:, None], lags[:, None])
        return float(least[0]) / solved.ways.time_s, float(most[0]) / solved.ways.time_s

    def _remarks(self, bends: Floats) -> list[str]:
        """Return remarks on prices that bend near by."""
        solved = self.solved
        numbers, _ = solved.ways.chain
        tasks = solved.tasks[numbers]
        tasks = tasks[tasks >= 0]
        bent: Indices = tasks[bends[tasks] > 0]
        if bends[bent].sum() <= _SEEN * solved.ways.time_s:
            return []
        numbered: list[int] = bent.tolist()
        names = dict.fromkeys(solved.names[task][1] for task in numbered)
        return [f"another piece within 1 %: {', '.join(names)}"]
