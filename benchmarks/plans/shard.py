"""How long `perfc shard` takes, how good its plans are, how near its compact cost is.

    python benchmarks/plans/shard.py [speed] [large] [best] [accuracy]

`speed`: 60 tables on 8 GPUs, in this process and as a command; `large`: 1,000 tables on
128 GPUs, three seeds; `best`: 100 small tasks against every plan there is; `accuracy`:
random plans, compact cost against the pipeline.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from perfc.costmodels import load_target
from perfc.passes.embeddings import (
    COLUMN_WISE,
    GRID,
    ROW_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
)
from perfc.planning.searches import (
    BASELINES,
    Draft,
    Task,
    count_plans,
    search,
)
from perfc.planning.searches.exhaustive_search import exhaustive
from perfc.tools.models.table_list import ListedTable, TableList
from perfc.tools.request import Request
from perfc.tools.sharding.model import ShardModel, world_of

ALL = (TABLE_WISE, COLUMN_WISE, ROW_WISE, TABLE_ROW_WISE, GRID)
SYSTEM, BATCH = "dgx-a100", 2048
_KEPT = 0.9
"""Share of the tables that stay where they are, in a plan near the best."""


def tables(seed: int, count: int) -> TableList:
    """Tables of sizes as recommendation models have them."""
    chance = random.Random(seed)
    listed = [
        ListedTable(
            name=f"t{number}",
            rows=int(10 ** chance.uniform(3, 7)),
            dim=chance.choice((16, 32, 64, 128)),
            pooling=int(10 ** chance.uniform(0, 2)),
        )
        for number in range(count)
    ]
    return TableList("tables", tuple(listed), BATCH)


def searched(seed: int, count: int, ranks: int, seconds: float) -> None:
    """Print what a search takes, and how it compares with the baselines."""
    target, begun = load_target(SYSTEM), (time.perf_counter(), time.process_time())
    model = ShardModel(
        request=Request(model=tables(seed, count).program(BATCH), mode="training"),
        target=target,
        world=world_of(target, ranks),
    )
    types = (TABLE_WISE, COLUMN_WISE)
    cost = model.cost(types)
    task = Task.of(model.tables, cost, model.world, 7e10, types)
    priced = (time.perf_counter(), time.process_time())
    found = search(task, seconds=seconds)
    ended = (time.perf_counter(), time.process_time())
    steps = {one.name: one.draft.step_s for one in found}
    least = min(steps[name] for name in BASELINES if name in steps)
    print(
        f"{count} tables, {ranks} ranks, seed {seed}: prices "
        f"{priced[0] - begun[0]:.2f} s (cpu {priced[1] - begun[1]:.2f}), search "
        f"{ended[0] - priced[0]:.2f} s (cpu {ended[1] - priced[1]:.2f}); step "
        f"{steps['local'] * 1e3:.3f} ms, best baseline {least * 1e3:.3f} ms"
    )
    if steps["local"] > least:
        sys.exit("worse than a baseline")


def best(count: int) -> None:
    """Print how far plans found are from the best of all plans, by the step's time."""
    target, ratios, plans = load_target(SYSTEM), list[float](), list[int]()
    for seed in range(count):
        tight = (1.05, 1.3, 3.0)[seed % 3]
        listed, ranks = (5, 2) if seed % 2 else (4, 4)
        model = ShardModel(
            request=Request(model=tables(seed, listed).program(BATCH), mode="training"),
            target=target,
            world=world_of(target, ranks),
        )
        types = ALL[:3] if ranks == 2 else ALL[:2]  # so that all can be tried
        room = tight * sum(table.bytes for table in model.tables) / ranks + 1e9
        task = Task.of(model.tables, model.cost(types), model.world, room, types)
        least = exhaustive(task)
        if least is None:
            continue
        plans.append(count_plans(task))
        ratios.append(search(task)[0].draft.step_s / least.step_s)
    print(
        f"{len(ratios)} tasks of {min(plans)} to {max(plans)} plans: the plan found "
        f"takes at most {100 * (max(ratios) - 1):.3f} % more than the best of all"
    )


def command(count: int, ranks: int) -> None:
    """Print what the command takes, imports and all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tables.json"
        listed = tables(0, count)
        rows = [
            {"name": t.name, "rows": t.rows, "dim": t.dim, "pooling": t.pooling}
            for t in listed.tables
        ]
        path.write_text(json.dumps({"tables": rows, "batch": BATCH}), encoding="utf-8")
        arguments = [str(path), "--target", SYSTEM, "--ranks", str(ranks), "-q"]
        arguments += ["--types", "table-wise,column-wise"]
        for more in ([], ["--full", "0"]):
            begun = time.perf_counter()
            run = [sys.executable, "-m", "perfc", "shard", *arguments, *more]
            subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
            took = time.perf_counter() - begun
            print(
                f"perfc shard, {' '.join(more) or 'all plans analyzed'}: {took:.2f} s"
            )


def accuracy(
    text: str, system: str, ranks: int, batch: int, types: tuple[str, ...]
) -> None:
    """Print how far the compact cost is from the pipeline over random plans."""
    target = load_target(system)
    chance = random.Random(0)
    world = world_of(target, ranks)
    asked = Request(model=text, batch=batch, mode="training")
    model = ShardModel(request=asked, target=target, world=world)
    task = Task.of(model.tables, model.cost(types), world, 1e12, types)
    drafts = [one.draft for one in search(task, seconds=20)]
    best = drafts[0]
    for number in range(24):
        near = number % 2 == 0
        made = best.copy() if near else Draft.empty(task)
        for table, options in enumerate(task.options):
            if near and chance.random() < _KEPT:
                continue
            at = chance.randrange(len(options))
            places = range(options[at].places)
            spot = tuple(sorted(chance.sample(places, options[at].parts)))
            made.set(table, (at, spot))
        drafts.append(made)
    compact = np.array([draft.step_s for draft in drafts])
    whole = np.array([model.report(draft.plan).time_us * 1e-6 for draft in drafts])
    pairs = np.array([(i, j) for i in range(len(drafts)) for j in range(i)])
    one, other = compact[pairs], whole[pairs]
    tau = np.mean(np.sign(one[:, 0] - one[:, 1]) * np.sign(other[:, 0] - other[:, 1]))
    error = np.abs(compact / whole - 1)
    print(
        f"{text}, {ranks} ranks of {system}, {len(types)} types, {len(drafts)} plans: "
        f"MAPE {100 * error.mean():.2f} %, most {100 * error.max():.1f} %, Kendall's "
        f"tau {tau:.2f}; the plan found takes {100 * (whole[0] / whole.min() - 1):.2f} "
        "% more than the best of them"
    )


def main(wanted: list[str]) -> None:
    """Run what is asked for, or all."""
    if not wanted or "speed" in wanted:
        for seed in range(3):
            searched(seed, 60, 8, 60)
        command(60, 8)
    if not wanted or "large" in wanted:
        for seed in range(3):
            searched(seed, 1000, 128, 30)
    if not wanted or "best" in wanted:
        best(100)
    if not wanted or "accuracy" in wanted:
        accuracy("dlrm-mlperf", "dgx-a100", 8, 8192, ALL[:2])
        accuracy("dcnv2-mlperf", "dgx-a100", 8, 4096, ALL[:3])
        accuracy("dlrm-default:tables=24", "dgx-h100", 16, 2048, ALL)
        accuracy("deeprecsys-rm2", "dgx-v100", 8, 1024, ALL[:3])


if __name__ == "__main__":
    main(sys.argv[1:])
