"""What a running process takes: prints the least CPU seconds of each, as JSON.

Beside them is the time of a fixed loop, which `ratios.py` divides them by.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

import perfc
from perfc.costmodels import cost_models, load_target, price
from perfc.costmodels.pricing import price_table
from perfc.measurements import kernel_tables

sys.path.append(str(Path(__file__).parents[1]))
from speed import cpu_time, pricing

MODEL = Path(__file__).parents[2] / "examples" / "models" / "dlrm_mlperf.onnx"
BATCH = 2048
TARGETS = ("a100", "h100", "v100", "l4")
ROUNDS = 8

GEMMS = 100
"""GEMMs priced one by one in a call, of other sizes each."""

TABLES = 10
"""Tables of one row priced in a call."""

ROWS = 2_000
"""Rows of a table of columns."""

Calls = dict[str, Callable[[], object]]


def main() -> int:
    """Measure and print."""
    calls, parts = {cpu_time.LOOP: cpu_time.loop, **analyses(), **prices()}, parts_of()
    least_s = cpu_time.least(calls, ROUNDS)
    print(json.dumps({name: s / parts.get(name, 1) for name, s in least_s.items()}))
    return 0


def parts_of() -> dict[str, int]:
    """Return how many times what is measured is done in a call, where not once."""
    return {
        "warm: another target, loaded": len(TARGETS),
        "warm: another target, by name": len(TARGETS),
        "price: one GEMM": GEMMS,
        "price: a table of one row": TABLES,
        "price: a training step": len(TARGETS),
    }


def analyses() -> Calls:
    """Return analyses of one model; of targets, all in a call: they differ."""
    loaded = perfc.load(MODEL, batch=BATCH)
    targets = [load_target(name) for name in TARGETS]
    batches = itertools.count(BATCH + 1)

    def rebind() -> float:
        rebound = loaded.bind(batch=next(batches))
        return perfc.analyze(rebound, targets[0]).time_us

    return {
        "warm: file to report": lambda: str(
            perfc.analyze(perfc.load(MODEL, batch=BATCH), TARGETS[0])
        ),
        "warm: another target, loaded": lambda: [
            perfc.analyze(loaded, target).time_us for target in targets
        ],
        "warm: another target, by name": lambda: [
            perfc.analyze(loaded, name).time_us for name in TARGETS
        ],
        "warm: another batch": rebind,
    }


def prices() -> Calls:
    """Return kernels priced one by one, and tables so short that no row counts."""
    models, target = cost_models(), load_target(TARGETS[0])
    ((_, table),), _ = kernel_tables("gemm", "bf16", pricing.shapes("gemm", GEMMS))
    ((_, short),), _ = kernel_tables("gemm", "bf16", pricing.shapes("gemm", 1))
    kernels = list(table.kernels)
    loaded = perfc.load("dlrm-mlperf", batch=BATCH, mode="training")
    (graph,) = perfc.analyze(loaded, target).results.graphs
    others = [load_target(name) for name in TARGETS]
    ((_, long),), _ = kernel_tables("gemm", "bf16", pricing.shapes("gemm", ROWS))
    return {
        "price: one GEMM": lambda: [price([k], target, models) for k in kernels],
        # A new table each time: one keeps what was read off it.
        "price: a table of one row": lambda: [
            price_table(attrs.evolve(short), target, models) for _ in range(TABLES)
        ],
        "price: a training step": lambda: [
            price(graph.kernels, other, models) for other in others
        ],
        "price: 2,000 rows of columns": lambda: price_table(
            attrs.evolve(long), target, models
        ),
    }


if __name__ == "__main__":
    raise SystemExit(main())
