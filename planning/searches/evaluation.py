"""How well a cost chooses plans: against another cost, or against measurements."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.ir import PerfcError
from perfc.measurements import Schema, read_rows
from perfc.passes import Plan, World
from perfc.planning.plans import PlanCost, Table, check_plan, is_less, least
from perfc.planning.searches.kendall import kendall_tau

SCHEMA = "perfc.sharding-evaluation/1"


@attrs.frozen
class ShardingTime:
    """A measured step of a plan, as files of `perfc.shardings/1` hold it."""

    task: str
    plan: str
    time_us: float


SHARDING_TIMES = Schema("perfc.shardings/1", ShardingTime)
"""The format of measured steps of plans."""

Times = Mapping[str, Mapping[str, float]]
"""Time of each plan, by the names of the task and of the plan."""


def read_times(path: str | Path) -> Times:
    """Read measured steps from CSV or Parquet, with the columns `task, plan, time_us`.

    Returns:
        Seconds.

    """
    found: dict[str, dict[str, float]] = {}
    for row in read_rows(path, SHARDING_TIMES):
        plans = found.setdefault(row.task, {})
        if row.plan in plans:
            msg = f"{path}: task {row.task!r} has plan {row.plan!r} twice"
            raise PerfcError(msg)
        plans[row.plan] = row.time_us * 1e-6
    return found


def plan_loads(
    cost: PlanCost, tables: Sequence[Table], plan: Plan, world: World
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the loads and the bytes that a plan puts on each rank.

    Returns:
        Loads of ranks and resources, float64, shape `(ranks, resources)`; bytes of
        memory of ranks, shape `(ranks,)`.

    """
    check_plan(tables, plan, world)
    loads = np.zeros((world.ranks, len(cost.resources)))
    memory = np.zeros(world.ranks)
    for table in tables:
        for shard in cost.shards(table, plan[table.name]):
            loads[shard.rank] += shard.loads
            memory[shard.rank] += shard.memory_bytes
    return loads, memory


def plan_times(
    cost: PlanCost, tables: Sequence[Table], plans: Mapping[str, Plan], world: World
) -> dict[str, float]:
    """Return the seconds of a step under each plan, all priced in one call."""
    if not plans:
        msg = "there are no plans to price; expected one at least"
        raise PerfcError(msg)
    loads = [plan_loads(cost, tables, plan, world)[0] for plan in plans.values()]
    seconds = cost.step_s(np.stack(loads))
    return dict(zip(plans, (float(each) for each in seconds), strict=True))


@attrs.frozen(kw_only=True)
class Choice:
    """What a cost chose in one task.

    Attributes:
        task: The task.
        plans: How many there were to choose from.
        chosen: The plan that it takes to be fastest; the first of those that tie.
        best: The plan that is.
        hit: Whether they take as long. Where the cost ties several plans, the part of
            them that are as fast as the best.
        regret: Time of the chosen plan / time of the best - 1; the mean of plans that
            tie.
        tau: Kendall's tau-b of the two orders, where there are two orders.

    """

    task: str
    plans: int
    chosen: str
    best: str
    hit: float
    regret: float
    tau: float | None


@attrs.frozen
class Evaluation:
    """How a cost chose in some tasks."""

    choices: tuple[Choice, ...]

    @property
    def hit_rate(self) -> float:
        """The part of tasks in which it chose the fastest plan."""
        return float(np.mean([choice.hit for choice in self.choices]))

    @property
    def regret_mean(self) -> float:
        """How much longer than the best its choices take, on average."""
        return float(np.mean(self._regrets))

    @property
    def regret_p90(self) -> float:
        """How much longer nine of ten of them take at most."""
        return float(np.percentile(self._regrets, 90))

    @property
    def regret_max(self) -> float:
        """How much longer the worst of them takes."""
        return float(np.max(self._regrets))

    @property
    def tau_mean(self) -> float | None:
        """The mean of tau, over tasks where there is one."""
        taus = [choice.tau for choice in self.choices if choice.tau is not None]
        return float(np.mean(taus)) if taus else None

    @property
    def _regrets(self) -> list[float]:
        return [choice.regret for choice in self.choices]

    def to_json(self) -> str:
        """Write the metrics and each choice as JSON; fractions, not percent."""
        document = {
            "schema": SCHEMA,
            "tasks": len(self.choices),
            "hit_rate": self.hit_rate,
            "regret_mean": self.regret_mean,
            "regret_p90": self.regret_p90,
            "regret_max": self.regret_max,
            "kendall_tau": self.tau_mean,
            "choices": [attrs.asdict(choice) for choice in self.choices],
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    def to_table(self) -> str:
        """Write the metrics as one line of figures under one of names."""
        tau = self.tau_mean
        cells = {
            "tasks": str(len(self.choices)),
            "top-1": f"{self.hit_rate:.0%}",
            "regret mean": f"{self.regret_mean:.1%}",
            "p90": f"{self.regret_p90:.1%}",
            "max": f"{self.regret_max:.1%}",
            "Kendall tau": "-" if tau is None else f"{tau:.2f}",
        }
        widths = [max(len(name), len(cell)) for name, cell in cells.items()]
        lines = (
            "  ".join(
                f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)
            )
            for row in (cells.keys(), cells.values())
        )
        return "\n".join(lines) + "\n"


def evaluate(chooser: Times, reference: Times) -> Evaluation:
    """Return how well *chooser* finds the plans that are fastest by *reference*.

    Args:
        chooser: Times by the cost that is judged; tasks and plans that only it knows
            are left out.
        reference: Times by another cost, or as measured.

    """
    if not reference:
        msg = "there are no tasks to evaluate; expected one at least"
        raise PerfcError(msg)
    return Evaluation(tuple(_choices(chooser, reference)))


def _choices(chooser: Times, reference: Times) -> Iterator[Choice]:
    for task, real in reference.items():
        guessed = chooser.get(task, {})
        if not real:
            msg = f"task {task!r} has no plans to choose from"
            raise PerfcError(msg)
        if missing := [plan for plan in real if plan not in guessed]:
            msg = f"task {task!r}: plan {missing[0]!r} is measured, but not priced"
            raise PerfcError(msg)
        for plan in real:
            _check_time(task, plan, real[plan])
            _check_time(task, plan, guessed[plan])
        names, times = list(real), list(real.values())
        least_s = min(guessed[plan] for plan in real)
        chosen = [plan for plan in real if not is_less(least_s, guessed[plan])]
        best = names[least(times)]
        fastest_s = min(times)
        late = [plan for plan in chosen if is_less(fastest_s, real[plan])]
        lost = math.fsum(real[plan] / fastest_s - 1 for plan in late)
        choice = Choice(
            task=task,
            plans=len(real),
            chosen=chosen[0],
            best=best,
            hit=1 - len(late) / len(chosen),
            regret=lost / len(chosen),
            tau=kendall_tau([guessed[plan] for plan in real], times),
        )
        yield choice


def _check_time(task: str, plan: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds > 0):
        msg = f"task {task!r}, plan {plan!r}: expected a time above 0, found {seconds}"
        raise PerfcError(msg)
