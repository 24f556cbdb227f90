"""Random sharding tasks."""

from __future__ import annotations

import json
import math

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray

from perfc.ir import PerfcError, UsageError
from perfc.passes import World
from perfc.planning import generate_tasks, sharder_plans
from perfc.planning.plans import DATA_SETS, Table, drawn_tables

V100_BYTES = 16e9


def test_recipe() -> None:
    """Ten tasks a year, five of them heavy, with 36 to 66 tables that fit."""
    tasks = generate_tasks(ranks=4, memory_bytes=V100_BYTES)
    assert 20 == len({task.name for task in tasks})
    assert 10 == sum("heavy" in task.name for task in tasks)
    assert 10 == sum(task.name.startswith("2021") for task in tasks)
    for task in tasks:
        assert 36 <= len(task.tables) < 67
        assert sum(table.bytes for table in task.tables) <= 0.8 * V100_BYTES * 4
        assert {table.dim for table in task.tables} <= {32, 64, 128, 256}
        if "heavy" in task.name:
            assert min(table.pooling for table in task.tables) >= 20


def test_same_seed_same_tasks() -> None:
    """A seed draws the same tasks again, another one others."""
    first, again, other = (
        generate_tasks(memory_bytes=V100_BYTES, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_known_task() -> None:
    """What a seed draws does not change with Python or numpy."""
    task = generate_tasks(memory_bytes=V100_BYTES)[0]
    assert ("2021-heavy-0", len(task.tables)) == (task.name, TABLES_OF_FIRST)
    assert FIRST_TABLE == attrs.asdict(task.tables[0])


TABLES_OF_FIRST = 63
FIRST_TABLE = {
    "name": "emb_l.0",
    "rows": 478_581,
    "dim": 32,
    "pooling": pytest.approx(67.45020621199616),
    "element_bytes": 4.0,
    "weighted": False,
    "popularity": "zipf-mandelbrot(0.98,28.0145)",
}


@pytest.mark.parametrize("year", DATA_SETS)
def test_statistics(year: int) -> None:
    """Drawn tables look up, and tell apart, as many rows as were published."""
    data, tables = DATA_SETS[year], drawn_tables(year)
    lookups = sum(table.pooling for table in tables) * data.batch
    hits = [_hits(table, table.pooling * data.batch) for table in tables]
    unique = sum(float((rows * -np.expm1(-mean)).sum()) for mean, rows in hits)
    hot = sum(float((rows * mean)[mean > 1024].sum()) for mean, rows in hits)
    assert data.tables == len(tables)
    assert pytest.approx(data.lookups) == lookups
    assert pytest.approx(data.unique, rel=0.02) == unique
    assert pytest.approx(HOT[year], abs=0.02) == hot / lookups


HOT = {2021: 0.212, 2022: 0.302}
"""The part of lookups that hits rows seen more than 1,024 times in the batch."""


def _hits(table: Table, lookups: float) -> tuple[NDArray[np.float64], ...]:
    """Return how often rows are hit on average, and how many are so often."""
    law = table.popularity.removeprefix("zipf-mandelbrot(").removesuffix(")")
    exponent, shift = (float(number) for number in law.split(","))
    edges = np.unique(np.geomspace(1, table.rows + 1, 500).astype(np.int64))
    rows = np.diff(edges).astype(np.float64)
    middle = np.sqrt(edges[:-1] * np.maximum(1.0, edges[1:] - 1.0))
    weight = (middle + shift) ** -exponent
    return lookups * weight / (weight * rows).sum(), rows


def test_json() -> None:
    """A task is written as lists of tables are read, with its batch and its ranks."""
    task = generate_tasks(ranks=2, memory_bytes=V100_BYTES, batch=512)[-1]
    document = json.loads(task.to_json())
    assert ("perfc.sharding-task/1", 512, 2, V100_BYTES) == tuple(
        document[key] for key in ("schema", "batch", "ranks", "memory_bytes")
    )
    first = task.tables[0]
    assert len(task.tables) == len(document["tables"])
    assert {
        "name": first.name,
        "rows": first.rows,
        "dim": first.dim,
        "dtype": "fp32",
        "pooling": first.pooling,
        "popularity": first.popularity,
    } == document["tables"][0]
    tables = (attrs.evolve(first, element_bytes=1.0),)
    with pytest.raises(PerfcError, match=r"1\.0 bytes an element, expected 4 or 2"):
        attrs.evolve(task, tables=tables).to_json()


def test_many_ranks_draw_tables_twice() -> None:
    """Where a year has not as many tables, some come twice, under other names."""
    task = generate_tasks(ranks=64, memory_bytes=V100_BYTES)[0]
    assert len(task.tables) > len(drawn_tables(2021)) * 0.5
    world = World(ranks=64, per_node=8)
    assert sharder_plans(task.tables, world, memory_bytes=V100_BYTES)


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ({"ranks": 0}, "ranks is 0"),
        ({"batch": -1}, "batch is -1"),
        ({"memory_bytes": math.nan}, "memory_bytes is nan"),
    ],
)
def test_bad_sizes(sizes: dict[str, float], problem: str) -> None:
    """Numbers that are too small are refused."""
    with pytest.raises(UsageError, match=problem):
        generate_tasks(**{"memory_bytes": 1e9, **sizes})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - wrong on purpose


def test_no_room() -> None:
    """Tables that cannot fit, and a year without tables, are said."""
    with pytest.raises(PerfcError, match=r"no 9 to 15 tables of 2021 fit in 781 KiB"):
        generate_tasks(ranks=1, memory_bytes=1e6)
    with pytest.raises(UsageError, match="no statistics of tables of 2020"):
        drawn_tables(2020)
