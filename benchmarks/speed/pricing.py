"""What pricing costs: one kernel alone, rows of a table, a file of measured rows.

    python benchmarks/speed/pricing.py

Sizes are drawn with a fixed seed, log-uniformly. Times are the best of several, which
other programs lengthen least; use an idle machine and `OMP_NUM_THREADS=1`.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from perfc.costmodels import cost_models, load_target, price
from perfc.costmodels.pricing import price_table
from perfc.fitting.scores import score
from perfc.measurements import kernel_tables, read_columns

ONE_US, ROW_US, ROWS_PER_S = 30.0, 2.0, 200_000.0
"""Bars: a kernel alone, a row of a table, rows of a file."""

Params = dict[str, Any]

ROWS, ALONE, SHAPES = 4096, 15, 8_000
REPEATS = 25

KINDS = (
    ("gemm", "fp32", "v100-sxm2-16g", False),
    ("gemm", "fp32", "v100-pcie-32g", False),
    ("gemm", "fp32", "t4", True),
    ("gemm", "bf16", "a100-sxm-40g", False),
    ("gemm", "bf16", "a100-sxm-80g", False),
    ("elementwise", "fp32", "v100-sxm2-16g", False),
    ("softmax", "fp32", "v100-sxm2-16g", False),
    ("layer_norm", "fp32", "v100-sxm2-16g", False),
    ("batch_norm", "fp32", "v100-sxm2-16g", False),
    ("attention", "bf16", "a100-sxm-80g", False),
    ("attention", "bf16", "h100-sxm-80g", False),
    ("conv2d", "fp32", "v100-sxm2-16g", False),
    ("conv2d", "bf16", "a100-sxm-80g", False),
    ("embedding_bag", "fp32", "v100-sxm2-16g", False),
)
"""Op, type, target, and whether GEMMs are batched."""

WORDS: Mapping[str, Params] = {
    "elementwise": {"kind": "add", "tensor_inputs": 2},
    "batch_norm": {"kind": "training"},
    "gemm": {"layout": "nn"},
    "conv2d": {"kernel": 3, "stride": 1, "padding": 1, "groups": 1},
}
"""Parameters that are alike in all rows of an op."""

RANGES: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "gemm": {"m": (5, 12), "n": (5, 12), "k": (5, 12)},
    "attention": {"batch": (0, 5), "heads": (2, 6), "q_len": (4, 13)},
    "conv2d": {"n": (0, 7), "c_in": (2, 9), "c_out": (4, 9), "size": (3, 8)},
    "embedding_bag": {"rows": (10, 24), "pooling": (0, 7), "batch": (4, 14)},
}
"""Exponents of two that sizes lie between; of other ops, rows and columns."""

TARGETS = ("p100-pcie-16g", "v100-pcie-32g", "t4", "a100-pcie-40g")
"""Targets of the file, each with the same shapes."""


def shapes(op: str, rows: int, *, batched: bool = False) -> list[Params]:
    """Return parameters as measured rows have them."""
    draw = np.random.default_rng(len(op))
    ranges = RANGES.get(op, {"rows": (5, 13), "cols": (5, 13)})
    if op == "gemm":
        ranges = {"b": (2, 9) if batched else (0, 0), **ranges}
    sizes = {
        name: np.exp2(draw.uniform(*ends, rows)).astype(int).tolist()
        for name, ends in ranges.items()
    }
    each = [
        dict(zip(sizes, row, strict=True)) for row in zip(*sizes.values(), strict=True)
    ]
    return [_row(op, {**WORDS.get(op, {}), **row}) for row in each]


def _row(op: str, params: Params) -> Params:
    if op == "attention":
        return {**params, "kv_len": params["q_len"], "head_dim": 64}
    if op == "embedding_bag":
        table = {"rows": params["rows"], "dim": 64, "pooling": params["pooling"]}
        return {"batch": params["batch"], "tables": [table]}
    return params


def best_s(call: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the shortest time of several calls."""
    times: list[float] = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def bench_kind(op: str, dtype: str, name: str, *, batched: bool) -> bool:
    """Price kernels of one kind, one by one and as a table."""
    models, target = cost_models(), load_target(name)
    ((_, table),), _ = kernel_tables(op, dtype, shapes(op, ROWS, batched=batched))
    kernels = list(table.kernels[:ALONE])
    alone = [best_s(lambda k=k: price([k], target, models), 200) for k in kernels]  # type: ignore[misc]
    # A new table each time: one keeps what was read off it.
    rows_s = best_s(lambda: price_table(attrs.evolve(table), target, models))
    label = f"{'batched ' if batched else ''}{op} {dtype}, {name}"
    ok = report(f"price: one {label}", statistics.median(alone) * 1e6, "us", ONE_US)
    return ok & report(f"price: a row, {label}", rows_s / ROWS * 1e6, "us", ROW_US)


def bench_file() -> bool:
    """Score a file, which is read first: what `perfc validate` does after its start."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        count = write_rows(path)
        seconds = best_s(lambda: score([read_columns(path)]), 5)
    rate = count / seconds
    verdict = "ok" if rate >= ROWS_PER_S else "MISSED"
    name = f"validate: a CSV file of {count:,} rows"
    print(f"{name:<52} {rate:10.0f} rows/s   bar {ROWS_PER_S:9.0f}  {verdict}")
    return rate >= ROWS_PER_S


def write_rows(path: Path) -> int:
    """Write rows of several ops, all shapes on all targets; return how many."""
    names = ("target", "op", "dtype", "params", "latency_us", "timing", "source")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        rows = [
            (target, op, "fp32", json.dumps(params), 250.0, "event", "drawn")
            for op in ("gemm", "elementwise", "softmax", "layer_norm")
            for params in shapes(op, SHAPES, batched=True)
            for target in TARGETS
        ]
        writer.writerows(rows)
    return len(rows)


def report(name: str, value: float, unit: str, bar: float) -> bool:
    """Print a figure beside its bar; return whether it is met."""
    verdict = "ok" if value <= bar else "MISSED"
    print(f"{name:<52} {value:10.2f} {unit:<8} bar {bar:9.2f}  {verdict}")
    return value <= bar


def main() -> int:
    """Run them all."""
    ok = True
    for op, dtype, target, batched in KINDS:
        ok &= bench_kind(op, dtype, target, batched=batched)
    return 0 if ok & bench_file() else 1


if __name__ == "__main__":
    sys.exit(main())
