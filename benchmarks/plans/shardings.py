"""How well costs choose among the plans of sharders: `shardings.py [--help]`.

Lin et al. let their predictions choose among the plans of seven sharders, in twenty
random tasks (`perfc.planning.plans.tasks`). Here every cost chooses, and is judged by
perfc's own cost of the step, or by times that were measured: a CSV or Parquet file
with the columns `task, plan, time_us`. Tasks and plans that it lacks are left out.

    .venv/bin/python benchmarks/plans/shardings.py --system dgx-a100 --ranks 4
    .venv/bin/python benchmarks/plans/shardings.py --times measured.csv --json out.json
    .venv/bin/python benchmarks/plans/shardings.py --search 10
    .venv/bin/python benchmarks/plans/shardings.py --write tasks/

With `--search` TorchRec's planner finds a plan of its own, of tables whole or cut by
rows or columns; it is judged beside the one that perfc's search finds by its own cost.
The last writes the tasks, as `perfc shard` reads them, and does nothing else.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfc.costmodels import load_target
from perfc.passes import World
from perfc.passes.embeddings import COLUMN_WISE, ROW_WISE, TABLE_WISE
from perfc.planning import (
    PerfRules,
    Topology,
    TorchRecCost,
    TorchRecPlanner,
    evaluate,
    generate_tasks,
    plan_times,
    read_times,
    sharder_plans,
)
from perfc.planning.plans import SHARDERS, PlanCost, ShardingTask, WeightCost
from perfc.planning.searches import Task, Times, search
from perfc.tools.models.table_list import ListedTable, TableList
from perfc.tools.request import Request
from perfc.tools.sharding.model import ShardModel, world_of

PHYSICAL = "physical"


def main() -> None:
    """Print a table for each cost."""
    asked = _arguments()
    target = load_target(asked.system)
    world = world_of(target, asked.ranks)
    tasks = generate_tasks(
        ranks=asked.ranks,
        memory_bytes=target.device.memory.usable_bytes,
        batch=asked.batch,
        seed=asked.seed,
    )
    if asked.write:
        _write(tasks, asked.write)
        return
    times: dict[str, dict[str, dict[str, float]]] = {}
    for task in tasks[:: asked.every]:
        for cost, seconds in _times_of(task, world, asked).items():
            times.setdefault(cost, {})[task.name] = seconds
    reference: Times = read_times(asked.times) if asked.times else times[PHYSICAL]
    judged = {cost: evaluate(chosen, reference) for cost, chosen in times.items()}
    if asked.search:
        found = {t.name: _searched(t, world, asked) for t in tasks[:: asked.every]}
        judged["torchrec's planner"] = evaluate(dict.fromkeys(found, _CHOSEN), found)
    documents: dict[str, object] = {}
    for cost, evaluation in judged.items():
        print(f"{cost}\n{evaluation.to_table()}")
        documents[cost] = json.loads(evaluation.to_json())
    if asked.json:
        asked.json.write_text(json.dumps(documents, indent=2) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--system", default="dgx-a100", help="GPUs, as --target")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4096, help="of each rank")
    parser.add_argument("--seed", type=int, default=0, help="which tasks")
    parser.add_argument("--every", type=int, default=1, help="take each n-th task")
    parser.add_argument("--times", type=Path, help="measured steps to judge by")
    parser.add_argument("--search", type=float, default=0.0, help="seconds a task")
    parser.add_argument("--json", type=Path, help="write the metrics here, too")
    parser.add_argument("--write", type=Path, help="write the tasks to this folder")
    return parser.parse_args()


def _write(tasks: Sequence[ShardingTask], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        path = folder / f"{task.name}.json"
        path.write_text(task.to_json(), encoding="utf-8")


def _times_of(
    task: ShardingTask, world: World, asked: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Return of each cost the seconds of each plan that fits."""
    plans = sharder_plans(
        task.tables, world, seed=asked.seed, memory_bytes=task.memory_bytes
    )
    return {
        name: plan_times(cost, task.tables, plans, world)
        for name, cost in _costs(task, world, asked.system).items()
    }


_CHOSEN = {"planner": 1.0, "search": 2.0}
"""The planner takes its own plan to be the best."""


def _searched(
    task: ShardingTask, world: World, asked: argparse.Namespace
) -> dict[str, float]:
    """Return the seconds of the plans that are found, by perfc's own cost."""
    kinds = (TABLE_WISE, COLUMN_WISE, ROW_WISE)
    topology = Topology(world=world)
    planner = TorchRecPlanner(
        cost=TorchRecCost(rules=PerfRules(topology=topology, batch=task.batch)),
        world=world,
        memory_bytes=task.memory_bytes,
        kinds=kinds,
    )
    cost = _physical(task, world, asked.system, kinds)
    plans = {"planner": planner.plan(task.tables).plan}
    asks = Task.of(task.tables, cost, world, task.memory_bytes, kinds)
    best = search(asks, "local", seconds=asked.search, seed=asked.seed)[0]
    plans["search"] = best.draft.plan
    return plan_times(cost, task.tables, plans, world)


def _costs(task: ShardingTask, world: World, system: str) -> Mapping[str, PlanCost]:
    topology = Topology(world=world)
    weights = [name for name in SHARDERS if name.endswith("_greedy")]
    return {
        PHYSICAL: _physical(task, world, system, (TABLE_WISE,)),
        "torchrec": TorchRecCost(rules=PerfRules(topology=topology, batch=task.batch)),
        **{name: WeightCost(sharder=name, world=world) for name in weights},
    }


def _physical(
    task: ShardingTask, world: World, system: str, kinds: Sequence[str]
) -> PlanCost:
    """Return perfc's own cost of a model that has the tables and nothing else."""
    listed = [
        ListedTable(
            name=table.name,
            rows=table.rows,
            dim=table.dim,
            pooling=table.pooling,
            popularity=table.popularity,
        )
        for table in task.tables
    ]
    asked = Request(
        model=TableList(task.name, tuple(listed), task.batch).program(task.batch),
        mode="training",
        optimizer="rowwise_adagrad",
    )
    model = ShardModel(request=asked, target=load_target(system), world=world)
    return model.cost(kinds)


if __name__ == "__main__":
    main()
