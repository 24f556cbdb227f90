"""Random sharding tasks, by the recipe of Lin et al.

They draw tables of the data sets that Meta published
(https://github.com/facebookresearch/dlrm_datasets, MIT). **The tables here are not
those tables**: perfc has only the statistics that come with them, and draws tables of
which those statistics are true: lookups of a sample, distinct rows of a batch, and the
part of lookups that hit rows seen more than 1,024 times. How pooling and rows spread
over tables is not published: log-normal, correlated by a half, is an assumption.
"""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence

import attrs

from perfc.ir import PerfcError, UsageError
from perfc.ir.support import format_bytes
from perfc.planning.plans.cost import Table

SCHEMA = "perfc.sharding-task/1"

DIMS = (32, 64, 128, 256)
"""Columns that a table may have; the data sets do not say."""

HEAVY_POOLING = 20.0
"""Tables with so many rows a bag make a heavy task."""

_TABLES_PER_RANK, _SPREAD = 13, 0.3
_USABLE = 0.8
_TASKS_OF_YEAR, _HEAVY_OF_YEAR = 10, 5
_ATTEMPTS = 1000


@attrs.frozen(kw_only=True)
class DataSet:
    """Statistics of one year's tables.

    Attributes:
        year: When they were published.
        tables: How many there are.
        batch: Samples of the batch that was counted.
        lookups: Rows that it looked up, in all tables.
        unique: How many of them differ.
        rows_mean: Rows of a table, on average: what makes as many differ.
        exponent: Of the Zipf-Mandelbrot law that fits all tables together.
        shift: Of that law, for a table of `rows_mean` rows; in proportion for others.

    """

    year: int
    tables: int
    batch: int
    lookups: int
    unique: int
    rows_mean: float
    exponent: float
    shift: float

    @property
    def pooling_mean(self) -> float:
        """Rows that a sample looks up in a table, on average."""
        return self.lookups / self.batch / self.tables


DATA_SETS: Mapping[int, DataSet] = {
    2021: DataSet(
        year=2021,
        tables=856,
        batch=65_536,
        lookups=887_017_990,
        unique=128_435_723,
        rows_mean=410_000,
        exponent=0.98,
        shift=24.0,
    ),
    2022: DataSet(
        year=2022,
        tables=788,
        batch=131_072,
        lookups=1_405_163_864,
        unique=110_259_238,
        rows_mean=250_000,
        exponent=1.03,
        shift=44.0,
    ),
}
"""Data sets, by year. `tables` to `unique` are published (`locality_stats`), `exponent`
is that of the fit to all tables; `rows_mean` and `shift` make drawn tables agree."""

_POOLING_SIGMA, _ROWS_SIGMA, _CORRELATION = 1.0, 1.5, 0.5
"""Sigmas of the logarithms of pooling and of rows, and their correlation: assumed."""

_POOL_SEED = 0
"""Seed of the tables that there are: alike for all tasks, as in a data set."""


@attrs.frozen(kw_only=True)
class ShardingTask:
    """Tables to shard.

    Attributes:
        name: What reports call it.
        tables: The tables.
        ranks: How many ranks they are for.
        batch: Samples of each rank.
        memory_bytes: Memory of a rank's device.

    """

    name: str
    tables: tuple[Table, ...]
    ranks: int
    batch: int
    memory_bytes: float

    def to_json(self) -> str:
        """Write it as JSON, `tables` and `batch`, as `perfc shard` reads it."""
        document = {
            "schema": SCHEMA,
            "name": self.name,
            "ranks": self.ranks,
            "batch": self.batch,
            "memory_bytes": self.memory_bytes,
            "tables": [_entry(table) for table in self.tables],
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


_DTYPES = {4.0: "fp32", 2.0: "fp16"}


def _entry(table: Table) -> dict[str, object]:
    if table.element_bytes not in _DTYPES:
        found = f"{table.element_bytes} bytes an element, expected 4 or 2"
        msg = f"table {table.name!r}: {found}"
        raise PerfcError(msg)
    return {
        "name": table.name,
        "rows": table.rows,
        "dim": table.dim,
        "dtype": _DTYPES[table.element_bytes],
        "pooling": table.pooling,
        "popularity": table.popularity,
    }


def generate_tasks(
    *, ranks: int = 4, memory_bytes: float, batch: int = 4096, seed: int = 0
) -> list[ShardingTask]:
    """Draw 20 tasks: ten of each year's tables, the first five of them heavy.

    A task has from 0.7 to 1.3 times 13 tables a rank, and its rows fit in 0.8 of the
    memory of all ranks. Heavy ones have tables of 20 rows a bag and more only.
    The same arguments draw the same tasks.

    Args:
        ranks: How many ranks tables are sharded over.
        memory_bytes: Memory of a rank's device.
        batch: Samples of each rank; Lin et al. take 512 to 4,096.
        seed: Which tasks.

    """
    sizes = {"ranks": ranks, "batch": batch, "memory_bytes": memory_bytes}
    for name, size in sizes.items():
        if not (math.isfinite(size) and size >= 1):
            msg = f"generate_tasks: {name} is {size}, expected a number from 1 on"
            raise UsageError(msg)
    chance = random.Random(seed)
    room = _USABLE * memory_bytes * ranks
    return [
        ShardingTask(
            name=f"{year}-{'heavy' if heavy else 'any'}-{number}",
            tables=_drawn(chance, year, heavy=heavy, ranks=ranks, room=room),
            ranks=ranks,
            batch=batch,
            memory_bytes=memory_bytes,
        )
        for year in DATA_SETS
        for number, heavy in _numbered()
    ]


def _numbered() -> Iterator[tuple[int, bool]]:
    yield from ((at, at < _HEAVY_OF_YEAR) for at in range(_TASKS_OF_YEAR))


def _drawn(
    chance: random.Random, year: int, *, heavy: bool, ranks: int, room: float
) -> tuple[Table, ...]:
    """Draw tables until they fit."""
    least = HEAVY_POOLING if heavy else 0.0
    pool = [table for table in drawn_tables(year) if table.pooling >= least]
    few = int(_TABLES_PER_RANK * ranks * (1 - _SPREAD))
    many = int(_TABLES_PER_RANK * ranks * (1 + _SPREAD))
    for _ in range(_ATTEMPTS):
        chosen = _sample(chance, pool, chance.randrange(few, many))
        if sum(table.bytes for table in chosen) <= room:
            named = enumerate(chosen)
            return tuple(attrs.evolve(t, name=f"emb_l.{at}") for at, t in named)
    msg = (
        f"no {few} to {many - 1} tables of {year} fit in {format_bytes(room)}, 0.8 of "
        "the memory of all ranks: give more memory"
    )
    raise PerfcError(msg)


def _sample(
    chance: random.Random, pool: Sequence[Table], count: int
) -> Sequence[Table]:
    """Draw without putting back, unless there are not as many."""
    if count <= len(pool):
        return chance.sample(pool, count)
    return chance.choices(pool, k=count)


@functools.cache
def drawn_tables(year: int) -> tuple[Table, ...]:
    """Return all tables of a year, which tasks choose from; always the same ones."""
    if year not in DATA_SETS:
        known = ", ".join(str(each) for each in DATA_SETS)
        msg = f"no statistics of tables of {year}; there are those of {known}"
        raise UsageError(msg)
    data = DATA_SETS[year]
    chance = random.Random(_POOL_SEED)
    tables = [_table(chance, data, at) for at in range(data.tables)]
    drawn = math.fsum(table.pooling for table in tables) / data.tables
    scale = data.pooling_mean / drawn
    return tuple(attrs.evolve(t, pooling=t.pooling * scale) for t in tables)


def _table(chance: random.Random, data: DataSet, at: int) -> Table:
    one, other = chance.gauss(0.0, 1.0), chance.gauss(0.0, 1.0)
    both = _CORRELATION * one + math.sqrt(1 - _CORRELATION**2) * other
    rows = max(1, round(_log_normal(data.rows_mean, _ROWS_SIGMA, both)))
    shift = data.shift * rows / data.rows_mean
    return Table(
        name=f"t{at}",
        rows=rows,
        dim=chance.choice(DIMS),
        pooling=_log_normal(data.pooling_mean, _POOLING_SIGMA, one),
        popularity=f"zipf-mandelbrot({data.exponent:g},{shift:.6g})",
    )


def _log_normal(mean: float, sigma: float, normal: float) -> float:
    """Return a log-normal number of that mean from a normal one."""
    return mean * math.exp(sigma * normal - sigma * sigma / 2)
