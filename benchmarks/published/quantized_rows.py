"""What it takes to quantise rows of 16 bits to fp8 as a model runs, on L40S.

    python benchmarks/published/quantized_rows.py MEASUREMENTS [--fit]

MEASUREMENTS holds `gemm_l40s.parquet` (aiconfigurator, Apache-2.0). Its GEMMs in
`fp8_dynamic` are vLLM's, with the kernel that quantises rows before them; those in
`fp8` are SGLang's, of operands that have 8 bits already. Where a GEMM has at most 128
columns its own time is small, and what is more in the first is the kernel's. Half of
the widths of rows is fitted, the others are left to compare; `--fit` (needs scipy) fits
the numbers anew. Also which share of the dynamic GEMMs is slower than those of bf16.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from perfc.costmodels import load_target
from perfc.costmodels.kernels import ARRAYS
from perfc.costmodels.streaming import KINDS, quantize_seconds
from perfc.costmodels.streaming.stream_time import Kind, Stream, streaming_seconds
from perfc.costmodels.streaming.traffic import MEMORY_RATES
from perfc.fitting.errors import errors_of

MOST_COLUMNS, LEAST_SHARE = 128, 0.5
"""Columns of the GEMMs, and the share of one that the kernel has to take."""

FREE = ("start_s", "share", "rereads", "row_cycles", "element_cycles")
FIRST = (2e-6, 0.9, 0.1, 1900.0, 0.1)
LEAST, MOST = (1e-8, 0.3, 1e-4, 100.0, 1e-4), (5e-6, 1.0, 2.0, 6000.0, 2.0)
TARGET = load_target("l40s")


def gemms(folder: Path) -> pd.DataFrame:
    """Return the times of GEMMs in us: a row a size, a column a type."""
    table = pd.read_parquet(folder / "gemm_l40s.parquet")
    sizes = pd.DataFrame([json.loads(text) for text in table.params])
    table = pd.concat([table.reset_index(drop=True), sizes], axis=1)
    index = ["m", "n", "k"]
    return table.pivot_table(index=index, columns="dtype", values="latency_us")


def kernels(table: pd.DataFrame) -> pd.DataFrame:
    """Return the us that quantising m rows of k elements takes."""
    found = table.dropna(subset=["fp8", "fp8_dynamic"]).reset_index()
    found["us"] = found.fp8_dynamic - found.fp8
    narrow = found.n <= MOST_COLUMNS
    found = found[narrow & (found.us > LEAST_SHARE * found.fp8)]
    return found.groupby(["m", "k"]).us.median().reset_index()


def score(title: str, rows: pd.DataFrame) -> None:
    """Print the errors of the kernels of some sizes."""
    m, k = rows.m.to_numpy(float), rows.k.to_numpy(float)
    predicted = 1e6 * quantize_seconds(m, k, "rows", TARGET, ARRAYS)
    found = errors_of(predicted, rows.us.to_numpy())
    assert found is not None
    said = f"MAPE {found.mape:.1%}  GMAE {found.gmae:.1%}  p90 {found.p90:.1%}"
    print(f"{title:32} n {len(rows)}  {said}  max {found.max:.0%}  {found.bias:+.1%}")


def fit(rows: pd.DataFrame) -> None:
    """Print numbers that fit these kernels."""
    from scipy.optimize import least_squares

    m, k = rows.m.to_numpy(float), rows.k.to_numpy(float)
    none = 0.0 * m
    stream = Stream(3 * m * k + 4 * m, 2 * m * k, m, k, *[none] * 6)
    known = KINDS["quantize"].numbers

    def off(logs: np.ndarray) -> np.ndarray:
        kind = known._replace(**dict(zip(FREE, np.exp(logs), strict=True)))
        whole = Kind(*[none + number for number in kind])
        seconds = streaming_seconds(stream, whole, TARGET, MEMORY_RATES, ARRAYS)
        return np.arctan(2 * np.log(1e6 * seconds / rows.us.to_numpy()))

    limits = (np.log(LEAST), np.log(MOST))
    made = least_squares(off, np.log(FIRST), bounds=limits)
    print({n: float(f"{v:.3g}") for n, v in zip(FREE, np.exp(made.x), strict=True)})


def main(folder: Path, *, fitted: bool) -> None:
    """Print the errors, and how the GEMMs compare with bf16."""
    table = gemms(folder)
    rows = kernels(table)
    widths = sorted(rows.k.unique())
    unseen = rows.k.isin(widths[1::2])
    if fitted:
        fit(rows[~unseen])
    score("fitted widths", rows[~unseen])
    left = rows[unseen]
    score("other widths", left)
    score("  1,024 rows and more", left[left.m >= 1024])
    score("    of up to 1,024 elements", left[(left.m >= 1024) & (left.k <= 1024)])
    both = table.dropna(subset=["bf16", "fp8_dynamic"]).reset_index()
    both = both[(both.m > 1024) & (both.n >= 512) & (both.n <= 8192)]
    for low, high in ((513, 1024), (1025, 2048), (2049, 4096), (4097, 1 << 20)):
        some = both[(both.k >= low) & (both.k <= high)]
        ratio = some.fp8_dynamic / some.bf16
        print(
            f"fp8_dynamic over bf16, k {low} to {high}: n {len(some)}, median "
            f"{ratio.median():.2f}, slower {(ratio > 1).mean():.0%}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), fitted="--fit" in sys.argv[2:])
