"""The pass `sustained-clock`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import attrs
import numpy as np

from perfc import costmodels
from perfc.costmodels import Estimate, KernelTable, Target
from perfc.costmodels.kernels import OF_TARGET, Floats
from perfc.ir import AnyKey, Program
from perfc.passes import facts
from perfc.passes.base import Pass, PassContext
from perfc.passes.columns import integers
from perfc.passes.timing.task_durations import sources, task_durations
from perfc.passes.timing.timeline import link, solve

if TYPE_CHECKING:
    from perfc.costmodels import Draws
    from perfc.costmodels.machine import Power


_CLOSE = 1e-9
"""Relative width of the bracket in which a limit is found."""
_KEPT = 1e-6
"""Share of the cap by which rounding may be above it."""
_CAP = "gpu.power_cap_watts"


@attrs.frozen
class SustainedClock(Pass):
    """Slow kernels down that the board's power cap does not let run at their price.

    Kernels are priced as they run for some milliseconds on a board that was idle. A
    step is one of many: training and inference run it again and again, so the window
    over which the driver averages watts is the step itself, whatever it takes, with
    its waits: a board that the host or the network keeps waiting draws little
    meanwhile. If the step at its prices stays within the cap, nothing changes.
    Otherwise the limit to which hardware holds every kernel falls until it does, and
    kernels that draw more and wait for arithmetic take longer
    (`perfc.costmodels.power`). One limit holds for all ranks: that of the board which
    draws most.

    The time of the step is that of its schedule without contention; under a limit, it
    is longer by what the kernels of its critical path are. Where another path becomes
    critical the step takes longer than that, and the board is a little below its cap.

    A target whose sheet has no joules keeps its prices, and so do kernels whose source
    states what they took.
    """

    name: ClassVar[str] = "sustained-clock"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({facts.HOSTED, facts.KERNEL_COST})
    provides: ClassVar[frozenset[AnyKey]] = frozenset(
        {facts.KERNEL_COST, facts.SUSTAINED}
    )

    def run(self, program: Program, ctx: PassContext) -> None:
        """Find the limit; write slower prices where it holds kernels down."""
        target, power = ctx.target, ctx.target.power
        if power is None and _CAP in target.fields:
            ctx.warn(
                "cap-without-power",
                f"{_CAP} changes no time: nobody has measured what {target.name} "
                "draws; its sheet needs the fields of [power]",
                target.name,
            )
        given = any(rank.launches is not None for rank in program.classes)
        if power is None or given:
            ctx.set(facts.SUSTAINED, program, None)
            return
        hosted = ctx.get(facts.HOSTED, program)
        costs = ctx.get(facts.KERNEL_COST, program)
        ranks = [len(rank.ranks) for rank in program.classes]
        # The step with the least time that it can take.
        # That is what its busiest stream or thread has to do: no schedule need be
        # solved to see that a step stays within the cap.
        boards: list[_Board] = []
        least_s = 0.0
        for launches, cost, number in zip(hosted, costs, ranks, strict=True):
            graph = launches.graph
            durations_s = task_durations([launches], [cost])
            busy_s = np.bincount(integers(graph.resource), durations_s)
            least_s = max(least_s, float(busy_s.max(initial=0.0)))
            counts = np.bincount(sources(graph).kernel, minlength=len(cost))
            table = KernelTable(graph.kernels)
            draws = costmodels.draws_of(table, cost.seconds, target, power)
            all_s = counts * cost.seconds
            boards.append(_Board(draws, all_s, np.zeros(len(cost)), number))
        step = _Step(boards, least_s)
        limit_watts = power.burst_watts
        if step.mean_watts(limit_watts) > power.cap_watts:
            step = _scheduled(step, hosted, costs, target)
            limit_watts = step.limit(power)
            slowed = (
                _slowed(cost, board, limit_watts)
                for cost, board in zip(costs, step.boards, strict=True)
            )
            ctx.set(facts.KERNEL_COST, program, tuple(slowed))
        sustained = step.sustained(limit_watts, target)
        # Say that the cap holds the clock down, or that no clock is low enough.
        mean_watts = step.mean_watts(limit_watts)
        name, cap = ctx.target.name, f"{power.cap_watts:g} W"
        if round(sustained.slowdown, 2) > 1:  # last digits differ by processor
            ctx.note(
                "power-cap",
                f"the cap of {cap} holds the SM clock down: to "
                f"{min(sustained.clock_hz) / 1e6:,.0f} MHz on average; kernels take up "
                "to "
                f"{sustained.slowdown:.2f} times as long as those of a short run",
                name,
            )
        if mean_watts > power.cap_watts * (1 + _KEPT):
            ctx.warn(
                "cap-not-kept",
                f"no SM clock keeps this step within the cap of {cap}: it draws "
                f"{mean_watts:.0f} W, and memory would have to be slower, too",
                name,
            )
        ctx.set(facts.SUSTAINED, program, sustained)


@attrs.frozen(eq=False)
class _Board:
    """What a GPU of one rank class runs in a step; columns of its distinct kernels.

    Attributes:
        draws: What each draws.
        all_s: Seconds of all launches of each, at their prices.
        path_s: Of those that are on the critical path.
        ranks: How many boards run this.

    """

    draws: Draws
    all_s: Floats
    path_s: Floats
    ranks: int

    def joules(self, limit_watts: float) -> float:
        """Return the joules of one board under a limit, above what it draws idle."""
        at = self.draws.at(limit_watts)
        return float(self.all_s @ (at.watts * at.slowdown))

    def late_s(self, limit_watts: float) -> float:
        """Return by how much its part of the critical path is longer under a limit."""
        return float(self.path_s @ (self.draws.at(limit_watts).slowdown - 1))

    def clock_share(self, limit_watts: float) -> float:
        """Return the mean clock while kernels run, over the boost clock."""
        at = self.draws.at(limit_watts)
        busy_s = self.all_s * at.slowdown
        total_s = float(busy_s.sum())
        return float(busy_s @ at.clock_share) / total_s if total_s else 1.0


@attrs.frozen(eq=False)
class _Step:
    """A step of some boards that takes so many seconds at the kernels' prices."""

    boards: Sequence[_Board]
    time_s: float

    def mean_watts(self, limit_watts: float) -> float:
        """Return the mean power of the board that draws most, under a limit."""
        late_s = math.fsum(board.late_s(limit_watts) for board in self.boards)
        most_j = max(board.joules(limit_watts) for board in self.boards)
        idle_watts = self.boards[0].draws.power.idle_watts
        time_s = self.time_s + late_s
        return idle_watts + (most_j / time_s if time_s else 0.0)

    def limit(self, power: Power) -> float:
        """Return the highest limit that keeps the mean power within the cap.

        The lowest there is, if none does.
        """
        low, high = power.idle_watts, power.burst_watts
        if self.mean_watts(high) <= power.cap_watts:
            return high
        while high - low > _CLOSE * high:
            middle = (low + high) / 2
            if self.mean_watts(middle) > power.cap_watts:
                high = middle
            else:
                low = middle
        return low

    def sustained(self, limit_watts: float, target: Target) -> facts.Sustained:
        """Return the fact."""
        known = all(
            bool(board.draws.known[board.all_s > 0].all()) for board in self.boards
        )
        joules = [board.ranks * board.joules(limit_watts) for board in self.boards]
        idle_watts = self.boards[0].draws.power.idle_watts
        slowdown = max(
            float(np.max(board.draws.at(limit_watts).slowdown, initial=1.0))
            for board in self.boards
        )
        boost_hz = target.device.sm_clock_hz
        return facts.Sustained(
            math.fsum(joules) if known else None,
            idle_watts * sum(board.ranks for board in self.boards),
            tuple(boost_hz * board.clock_share(limit_watts) for board in self.boards),
            slowdown,
        )


def _scheduled(
    step: _Step,
    hosted: Sequence[facts.HostedLaunches],
    costs: Sequence[Estimate],
    target: Target,
) -> _Step:
    """Return the step with the time, and the critical path, of its schedule."""
    timeline = link(hosted, target)
    durations_s = task_durations(hosted, costs)
    _, ends_s, cause = solve(timeline, durations_s)
    time_s = max(ends_s, default=0.0)
    path = np.zeros(len(timeline), dtype=np.bool_)
    task = ends_s.index(time_s) if ends_s else -1
    while task >= 0:
        path[task] = True
        task = cause[task]
    boards: list[_Board] = []
    for board, launches, cost, first in zip(
        step.boards, hosted, costs, timeline.offsets, strict=True
    ):
        found = sources(launches.graph)
        kernels = found.kernel[path[found.device + first]]
        counts = np.bincount(kernels, minlength=len(cost))
        boards.append(attrs.evolve(board, path_s=counts * cost.seconds))
    return _Step(boards, time_s)


def _slowed(cost: Estimate, board: _Board, limit_watts: float) -> Estimate:
    at = board.draws.at(limit_watts)
    of_target = cost.sigma_target.copy()
    of_target[OF_TARGET.index("clock")] = at.sigma
    seconds = cost.seconds * at.slowdown
    return attrs.evolve(cost, seconds=seconds, sigma_target=of_target)
