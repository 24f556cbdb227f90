"""Random reads of an Optane and a NAND drive, and lookups on one thread of a CPU.

    python benchmarks/published/ssd_reads.py FOLDER

FOLDER holds `ssd_random_reads.csv` (AnandTech, 4 KiB, anandtech.com/show/11209) and
`embedding_lookup_cpu.csv` (pytorch/FBGEMM pull request 1540). What the sheets of
the drives take of those rows: the latency at queue depth 1 as the idle one, and the
IOPS at 16 for the knee, a number for each kind of drive; so that the IOPS at depth 1
and the latencies at 16 are left to compare. Of the lookups, bf16 was fitted and fp16
was not.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from perfc.costmodels.sheets import load_memory
from perfc.costmodels.tiers import lookup_s, reads_per_s
from perfc.fitting.errors import errors_of

MEMORIES = {"p4800x-375g": "optane-p4800x", "p3700-800g": "p3700-800g"}
BYTES_OF_A_NUMBER = 2
"""Size of bf16 and fp16."""

Row = Mapping[str, str]


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def predicted_iops(row: Row) -> float:
    """Return the reads a second at a row's queue depth."""
    return reads_per_s(load_memory(MEMORIES[row["drive"]]), float(row["queue_depth"]))


def predicted_us(row: Row) -> float:
    """Return the mean latency at a row's queue depth, by Little's law."""
    return float(row["queue_depth"]) / predicted_iops(row) * 1e6


def predicted_lookup_us(row: Row) -> float:
    """Return how long the lookups of a row take."""
    cached = float(row["cache"] == "warm")
    row_bytes = int(row["dim"]) * BYTES_OF_A_NUMBER
    return float(row["lookups"]) * lookup_s(row_bytes, cached) * 1e6


def score(
    title: str, rows: Iterable[Row], column: str, predict: Callable[[Row], float]
) -> None:
    """Print each row beside its prediction, and the errors of all."""
    listed = list(rows)
    measured = np.array([float(row[column]) for row in listed])
    predicted = np.array([predict(row) for row in listed])
    print(title)
    for row, mine, theirs in zip(listed, predicted, measured, strict=True):
        what = " ".join(list(row.values())[:4])
        error = mine / theirs - 1
        print(f"  {what:44} {mine:12,.2f}  measured {theirs:12,.2f}  {error:+7.1%}")
    found = errors_of(predicted, measured)
    assert found is not None
    cells = {
        "MAPE": found.mape,
        "GMAE": found.gmae,
        "p90": found.p90,
        "max": found.max,
        "bias": found.bias,
    }
    text = "  ".join(f"{name} {value:.1%}" for name, value in cells.items())
    print(f"  n {len(listed)}  {text}")


def main(folder: Path) -> None:
    """Print all tables."""
    drives = rows_of(folder / "ssd_random_reads.csv")
    score("reads a second", drives, "iops", predicted_iops)
    idle = [row for row in drives if row["queue_depth"] == "1"]
    score("  of those, at queue depth 1", idle, "iops", predicted_iops)
    busy = [row for row in drives if row["queue_depth"] != "1"]
    score("latency under load, us", busy, "latency_mean_us", predicted_us)
    lookups = rows_of(folder / "embedding_lookup_cpu.csv")
    left = [row for row in lookups if row["dtype"] == "fp16"]
    score("lookups in fp16, us", left, "time_us", predicted_lookup_us)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
