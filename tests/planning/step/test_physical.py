"""The compact cost of plans, against the whole pipeline."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest

from perfc.costmodels import load_target
from perfc.ir import UsageError
from perfc.passes import Placement
from perfc.passes.embeddings import (
    COLUMN_WISE,
    GRID,
    ROW_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
)
from perfc.planning.searches import Draft, Task
from perfc.planning.step import Part, PhysicalCost
from perfc.tools.request import Request
from perfc.tools.sharding.model import ShardModel, world_of

SAME_ORDER = 0.7
"""Kendall's tau, at least."""

ALL = (TABLE_WISE, COLUMN_WISE, ROW_WISE, TABLE_ROW_WISE, GRID)


def _model(text: str, system: str, ranks: int, batch: int, **more: str) -> ShardModel:
    target = load_target(system)
    world = world_of(target, ranks)
    qcomm = more.pop("qcomm", "")
    asked = Request(model=text, batch=batch, mode=more.pop("mode", "training"), **more)  # type: ignore[arg-type]
    return ShardModel(request=asked, target=target, world=world, qcomm=qcomm)


def _task(model: ShardModel, types: tuple[str, ...]) -> Task:
    return Task.of(model.tables, model.cost(types), model.world, 1e12, types)


def _random_plan(task: Task, chance: random.Random) -> Draft:
    """Any options, on few ranks or on all."""
    draft, few = Draft.empty(task), chance.choice([1, 2, task.world.ranks])
    for table, options in enumerate(task.options):
        number = chance.randrange(len(options))
        option = options[number]
        places = range(min(option.places, max(few, option.parts)))
        spot = tuple(sorted(chance.sample(places, option.parts)))
        draft.set(table, (number, spot))
    return draft


def _tau(one: list[float], other: list[float]) -> float:
    """Kendall's, of steps that differ."""
    pairs = [(i, j) for i in range(len(one)) for j in range(i)]
    signs = [np.sign(one[i] - one[j]) * np.sign(other[i] - other[j]) for i, j in pairs]
    return float(np.mean(signs))


@pytest.mark.parametrize(
    ("text", "system", "ranks", "batch", "types", "mode", "near"),
    [
        (
            "dlrm-mlperf",
            "dgx-a100",
            8,
            8192,
            (TABLE_WISE, COLUMN_WISE),
            "training",
            0.03,
        ),
        ("dcnv2-mlperf", "dgx-a100", 8, 4096, ALL[:3], "training", 0.03),
        ("dcnv2-mlperf", "dgx-h100", 8, 8192, ALL[:2], "inference", 0.05),
        ("dlrm-default:tables=24", "dgx-h100", 16, 2048, ALL, "training", 0.12),
    ],
)
def test_near_the_whole_pipeline(
    text: str,
    system: str,
    ranks: int,
    batch: int,
    types: tuple[str, ...],
    mode: str,
    near: float,
) -> None:
    """Over random plans the mean error is small, and the order is the pipeline's.

    *near* bounds the mean absolute error; many of these plans are within a few percent
    of each other.
    """
    model = _model(text, system, ranks, batch, mode=mode)
    task, chance = _task(model, types), random.Random(0)
    drafts = [_random_plan(task, chance) for _ in range(8)]
    compact = [draft.step_s for draft in drafts]
    whole = [model.report(draft.plan).time_us * 1e-6 for draft in drafts]
    errors = [abs(c / w - 1) for c, w in zip(compact, whole, strict=True)]

    assert near >= np.mean(errors)
    assert _tau(compact, whole) >= SAME_ORDER


def test_parts_add_up() -> None:
    """A table in parts sends as many columns, and looks as many indices up in each."""
    model = _model("dlrm-default:tables=4", "dgx-a100", 4, 512)
    cost = model.cost((TABLE_WISE, COLUMN_WISE, ROW_WISE))
    table = model.tables[0]

    def sums(placement: Placement) -> dict[str, float]:
        shards = cost.shards(table, placement)
        loads = np.sum([shard.loads for shard in shards], axis=0)
        return dict(zip(cost.resources, loads.tolist(), strict=True))

    whole = sums(Placement(TABLE_WISE, (2,)))
    columns = sums(Placement(COLUMN_WISE, (0, 3)))
    rows = sums(Placement(ROW_WISE))
    assert 64.0 == whole["table_wise.columns"] == columns["table_wise.columns"]
    assert 100.0 == whole["table_wise.indices"] == columns["table_wise.indices"] / 2
    assert 100.0 == rows["row_wise.indices"]
    assert 0.0 == rows["table_wise.columns"] == whole["row_wise.columns"]


def test_memory_counts_states() -> None:
    """Adam keeps two numbers of each element, row-wise Adagrad one of each row."""
    need = {}
    for optimizer in ("sgd", "adam", "rowwise_adagrad"):
        model = _model("dlrm-default:tables=4", "dgx-a100", 4, 512, optimizer=optimizer)
        cost = model.cost((TABLE_WISE,))
        (shard,) = cost.shards(model.tables[0], Placement(TABLE_WISE, (0,)))
        need[optimizer] = shard.memory_bytes

    rows, dim = 1_000_000, 64
    assert 2 * 4 * rows * dim == need["adam"] - need["sgd"]
    assert 4 * rows == need["rowwise_adagrad"] - need["sgd"]


def test_popularity_reaches_the_lookup() -> None:
    """What is said of a table is said of its parts, and of the model's own bags."""
    model = _model(
        "dlrm-ddp:tables=3,rows=1000",
        "dgx-a100",
        2,
        64,
        popularity={"": "zipf:1.1", "emb_l.1": "uniform"},  # type: ignore[arg-type]
    )

    assert ["zipf:1.1", "uniform", "zipf:1.1"] == [t.popularity for t in model.tables]
    assert "zipf:1.1" == Part(10, 4, 1.0, "zipf:1.1").record()["popularity"]
    assert "popularity" not in Part(10, 4, 1.0).record()


def test_a_step_without_tables_is_the_rest() -> None:
    """Loads of zero are priced, and no plan is faster."""
    model = _model("dcnv2-mlperf", "dgx-a100", 8, 4096)
    task = _task(model, (TABLE_WISE, COLUMN_WISE))
    cost = task.cost
    assert isinstance(cost, PhysicalCost)
    empty = Draft.empty(task).step_s
    steps = [_random_plan(task, random.Random(n)).step_s for n in range(5)]

    assert 0 < empty < min(steps)


def test_other_kernels_and_types_have_no_price() -> None:
    """They are not priced as if they were others."""
    model = _model("dlrm-default:tables=2", "dgx-a100", 2, 64)
    cost, placement = model.cost((ROW_WISE,)), Placement(ROW_WISE)
    quantised = attrs.evolve(placement, compute_kernel="quant")

    assert 2 == len(cost.shards(model.tables[0], placement))
    with pytest.raises(UsageError, match="'quant' is none of fused"):
        cost.shards(model.tables[0], quantised)
    with pytest.raises(UsageError, match="'data_parallel' is none of table_wise"):
        cost.shards(model.tables[0], Placement("data_parallel"))
