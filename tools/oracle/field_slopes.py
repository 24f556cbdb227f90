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
from perfc.costmodels.sheets import FIELDS
from perfc.ir import PerfcError
from perfc.passes.manager import Analysis
from perfc.tools.oracle import edits
from perfc.tools.oracle.solved import Floats, Solved
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
_SEEN = 1e-3
"""Share of the time by which pieces have to differ to be worth a remark."""


def slopes_of_fields(solved: Solved) -> Iterator[Slope]:
    """Yield the slope of each number of the sheet that changes the time.

    Raises:
        UsageError: the target was given as an object, whose sheet is not known.
        PerfcError: a cost model is at fault.

    """
    setting = solved.state.setting
    numbers = {_SPEED: 1.0, **setting.run.target.fields}
    setting.check_source()
    prices = _Prices.of(solved)
    for name, value in numbers.items():
        if isinstance(value, str) or not value or name.endswith(_NUMBERED):
            continue
        if FIELDS[name].whole:
            found = _whole(solved, name, int(value))
        else:
            found = prices.slope(name, float(value))
        if found is not None:
            yield found


def _whole(solved: Solved, name: str, value: int) -> Slope | None:
    """Return the slope of what is counted: from one more, and from one less."""
    state, before_s = solved.state, solved.ways.time_s
    sides: list[float | None] = []
    for number in (value + 1, value - 1):
        try:
            setting = state.setting.made(edits.Target(**{name: number}))
            time_s = state.moved_to(setting).time_s
        except PerfcError:  # the sheet cannot say so
            sides.append(None)
            continue
        sides.append(math.log(time_s / before_s) / math.log(number / value))
    return _slope(name, *sides, ["one more, one less"])


def _slope(
    name: str, up: float | None, down: float | None, remarks: list[str]
) -> Slope | None:
    """Return the slope of a field from both sides of its value; None if it has none."""
    if up is None and down is None:
        return None
    if up is None or down is None:
        remarks = [*remarks, f"the sheet allows no {'larger' if up is None else 'smaller'}"]
    right = down if up is None else up
    left = up if down is None else down
    assert right is not None  # noqa: S101 - one of them is
    assert left is not None  # noqa: S101 - one of them is
    both = (right, left) if right + left <= 0 else (left, right)
    if max(map(abs, both)) < _LEAST:
        return None
    return Slope("target", name, *both, "; ".join(remarks))


_LEAST = 1e-9
"""Slopes below are what prices are rounded by."""


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

    def slope(self, name: str, value: float) -> Slope | None:
        """Return the slope of a field; None if nothing follows it."""
        far = [self._changed(name, value, share) for share in (_NEAR, -_NEAR)]
        if all(one is None or not one.any() for one in far):
            return None
        near = [self._changed(name, value, share) for share in (_STEP, -_STEP)]
        if near[0] is None or near[1] is None:
            sides = [one if one is not None else other for one, other in zip(near, far, strict=True)]
            spans = [None if side is None else self._along(side) for side in sides]
            return _slope(
                name,
                None if spans[0] is None else spans[0][1],
                None if spans[1] is None else spans[1][0],
                [],
            )
        right, left = near
        middle = (right + left) / 2
        smooth = np.abs(right - left) <= _ROUGH * self.before
        ahead, behind = (middle if one is None else one for one in far)
        up = np.where(smooth, middle, ahead)
        down = np.where(smooth, middle, behind)
        bent = np.abs(ahead + behind - 2 * middle)
        bent = np.maximum(bent, np.abs(ahead - middle) - _ROUGH * 10 * self.before)
        bends = np.where(smooth, bent, np.abs(ahead - behind))
        remarks = self._remarks(np.where(bends > _ROUGH * self.before, bends, 0.0))
        return _slope(name, self._along(up)[1], self._along(down)[0], remarks)

    def _changed(self, name: str, value: float, share: float) -> Floats | None:
        """Return by how much tasks and lags change for a change of the field's all.

        None if the sheet cannot say so.
        """
        setting, step = self.solved.state.setting, self.solved.step
        fields = dict(edits.Target(**{name: value * (1 + share)}).fields)
        try:
            target = setting.memory.target(
                setting.source, {**setting.overrides, **fields}
            )
        except PerfcError:
            return None
        run = attrs.evolve(step.run, target=target)
        priced = Step.priced(run, setting.memory, self.launches)
        found = (np.array([*priced.duration_s, *_lags_s(target)]) - self.before) / share
        found[[*self.solved.state.stated]] = 0.0
        return found

    def _along(self, changed: Floats) -> tuple[float, float]:
        """Return the least and the most slope that a critical path has of a change."""
        solved, count = self.solved, len(self.solved.step.duration_s)
        own = np.append(changed[:count], 0.0)[solved.tasks] * solved.slowed
        lags = changed[count:]
        most, least = solved.ways.spans(own[:, None], lags[:, None])
        return float(least[0]) / solved.ways.time_s, float(most[0]) / solved.ways.time_s

    def _remarks(self, bends: Floats) -> list[str]:
        """Return what there is to say of prices that bend near by."""
        solved = self.solved
        numbers, _ = solved.ways.chain
        tasks = solved.tasks[numbers]
        tasks = tasks[tasks >= 0]
        bent = tasks[bends[tasks] > 0]
        if bends[bent].sum() <= _SEEN * solved.ways.time_s:
            return []
        names = dict.fromkeys(solved.names[task][1] for task in bent.tolist())
        return [f"another piece within 1 %: {', '.join(names)}"]


def _lags_s(target: Target) -> list[float]:
    """Return the seconds of each kind of lag, as `Solved.lag_s`."""
    device = target.device
    latency_s = target.runtime.launch_latency_s
    return [0.0, device.stream_gap_s, device.graph_gap_s, latency_s]
