"""Score the kernel models on DLRM training: `dlrm_kernels.py FOLDER [--rows]`.

FOLDER holds `trace_kernels_v100_dlrm_*.csv` (owensgroup/ml_perf_model, BSD-3). Prints,
by family of kernels, how far the models are off on rows that no fit may have, then on
all; `geomean` is the geometric mean of absolute percentage errors, which the source's
authors state. The clock of their V100 was locked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from dlrm_rules import TARGET
from dlrm_traces import Traced, read

from perfc.costmodels import Target, cost_models, load_target, price
from perfc.fitting.errors import errors_of

LOCKED = {"gpu.sm_clock_mhz": "1297"}
"""`nvidia-smi -ac 877,1297` while they measured."""

_COLUMNS = ("geomean_ape", "mape", "gmae", "p90", "max", "bias")
_WIDTHS = "{:22}{:>5}" + "{:>9}" * 7


def say(*words: object) -> None:
    """Print one line."""
    print(*words)


def predicted_us(rows: Sequence[Traced], target: Target) -> np.ndarray:
    """Return the microseconds that the models predict for each row."""
    kernels = [kernel for row in rows for kernel in row.kernels]
    seconds = price(kernels, target, cost_models()).seconds
    ends = np.cumsum([len(row.kernels) for row in rows])
    return np.array([part.sum() for part in np.split(seconds, ends[:-1])]) * 1e6


def table(rows: Sequence[Traced], target: Target) -> None:
    """Print the errors by family."""
    head = ("geomean", "MAPE", "GMAE", "p90", "max", "bias", "total")
    say(_WIDTHS.format("family", "n", *head))
    for family in (*sorted({row.family for row in rows}), ""):
        mine = [row for row in rows if family in {row.family, ""}]
        predicted, measured = predicted_us(mine, target), np.array([r.us for r in mine])
        errors = errors_of(predicted, measured)
        total = predicted.sum() / measured.sum() - 1
        numbers = [getattr(errors, name) for name in _COLUMNS]
        shown = [f"{number:.1%}" for number in (*numbers, total)]
        say(_WIDTHS.format(family or "all", len(mine), *shown))
    say()


def main(folder: Path, *, each: bool) -> None:
    """Print both tables, and what is not in them."""
    rows, left = read(folder)
    target = load_target(TARGET, LOCKED)
    say("rows that no fit may have")
    table([row for row in rows if not row.fitted], target)
    say("all rows")
    table(rows, target)
    if each:
        for row, us in zip(rows, predicted_us(rows, target), strict=True):
            mark = "fit" if row.fitted else "   "
            say(
                f"{mark} {row.family:20} {row.trace:16} {row.op[:34]:34}"
                f"{row.us:8.1f}{us:8.1f}{us / row.us - 1:+8.1%}"
                f"  {row.kernels[0].op} {row.kernels[0].params}"[:150]
            )
    us = sum(float(row["mean_us"]) for _, row in left)
    all_us = us + sum(row.measured_us for row in rows)
    say(f"left out: {len(left)} rows, {us / all_us:.1%} of the time")


if __name__ == "__main__":
    main(Path(sys.argv[1]), each="--rows" in sys.argv)
