"""Fit the shared parameters of the kernel models, and say how far off they are.

    python benchmarks/fit_kernels.py DATA [--fit]

DATA is a folder with `measurements/*.parquet` in `perfc.measurements/1`. Without
`--fit` the parameters of the package are scored. Rows are split once, by a hash
of their sizes: one half is fitted, the other is reported. Products are fitted by
`benchmarks/fit.py`. Needs pandas and pyarrow.

Rows timed as `event` hold the host's dispatch, which ends before a long kernel
does but not before it starts: only rows above 150 us count, less 0.55 of the
shortest row of their op and GPU (what a line through long copies leaves over).
Rows timed as `graph` hold the gap between two kernels of a stream.
"""

from __future__ import annotations

import argparse
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import attrs
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from perfc.costmodels import (
    GEMM,
    STREAMING,
    CostModel,
    KernelTable,
    Target,
    load_target,
    lower_bound,
)
from perfc.costmodels.streaming import StreamKind
from perfc.fitting import DISPATCH_SHARE, LONG_EVENT_US, errors_of
from perfc.ir import Kernel
from perfc.measurements import MEASUREMENTS, kernel_of

STREAMING_FILE = "streaming.parquet"
FP32_FILE = "ops_fp32_seen_gpus.parquet"
FP32_GPUS = ("p100-pcie-16g", "v100-pcie-32g", "t4", "a100-pcie-40g")
UNSEEN_GPU = "p4"
Floats = NDArray[np.float64]


@attrs.frozen(eq=False)
class Rows:
    """Measured kernels of one op on one GPU."""

    target: Target
    op: str
    table: KernelTable
    seconds: Floats
    gap_s: float
    fitted: NDArray[np.bool_]

    def half(self, *, fitted: bool) -> Rows:
        """Return the rows that are fitted, or those held out."""
        return self.take(np.flatnonzero(self.fitted == fitted))

    def take(self, at: NDArray[np.intp]) -> Rows:
        """Return some of the rows."""
        return Rows(
            self.target,
            self.op,
            self.table.take(at),
            self.seconds[at],
            self.gap_s,
            self.fitted[at],
        )


def in_fit(params: str) -> bool:
    """Whether a row is fitted: the same sizes on all GPUs, for no model to see."""
    return zlib.crc32(b"perfc kernel split 1" + params.encode()) % 2 == 0


def load(path: Path, op: str, dtype: str, gpus: Sequence[str]) -> Iterator[Rows]:
    """Read one op of one file, GPU by GPU."""
    frame = pd.read_parquet(path)
    frame = frame[(frame["op"] == op) & (frame["dtype"] == dtype)]
    for name in gpus:
        target = load_target(name)
        rows = frame[frame["target"] == name]
        gap_s = 0.0
        dispatch_us = 0.0
        if rows["timing"].iloc[0] == "event":
            dispatch_us = DISPATCH_SHARE * rows["latency_us"].quantile(0.005)
            rows = rows[rows["latency_us"] > LONG_EVENT_US]
        else:
            gap_s = target.device.stream_gap_s
        kernels = [kernel_of(row) for row in MEASUREMENTS.rows_of(rows.to_dict("list"))]
        if path.name == STREAMING_FILE:
            far = np.array([_is_far(kernel, target) for kernel in kernels])
            rows = rows[far]
            kernels = [k for k, is_far in zip(kernels, far, strict=True) if is_far]
        yield Rows(
            target,
            op,
            KernelTable(kernels),
            (rows["latency_us"].to_numpy(np.float64) - dispatch_us) * 1e-6,
            gap_s,
            np.array([in_fit(p) for p in rows["params"]], dtype=np.bool_),
        )


def _is_far(kernel: Kernel, target: Target) -> bool:
    """Whether L2 cannot hold the operand or even a sixth of it would fit.

    The streaming rows repeat one kernel on one operand: between the two sizes
    they are warmer than a kernel among others.
    """
    l2_bytes = target.device.l2.capacity_bytes
    return not l2_bytes / 6 < kernel.work.bytes < 2 * l2_bytes


Predictor = Callable[[Rows], Floats]


def of_model(model: CostModel) -> Predictor:
    """Return what perfc would say: the model's answer, not below the bound."""
    return lambda rows: (
        rows.gap_s
        + np.maximum(
            model.estimate(rows.table, rows.target).seconds,
            lower_bound(rows.table, rows.target),
        )
    )


def say(*words: object) -> None:
    """Print one line."""
    print(*words)


def report(label: str, predicted: Floats, rows: Rows) -> Floats:
    """Print the errors of one group; return the logarithms of the ratios."""
    found = errors_of(predicted, rows.seconds)
    if found is not None:
        say(
            f"{label:34s} n {found.rows:6d}  MAPE {found.mape:6.3f}  "
            f"GMAE {found.gmae:6.3f}  p90 {found.p90:6.3f}  max {found.max:6.2f}  "
            f"bias {found.bias:+6.3f}  mean ln {found.log_mean:+6.3f}  "
            f"sd ln {found.log_spread:5.3f}"
        )
    return np.log(predicted / rows.seconds)


def score(predict: Predictor, groups: Sequence[Rows]) -> None:
    """Print the errors on held-out rows, and the two sigmas they ask for."""
    shared: list[float] = []
    own: list[float] = []
    for group in groups:
        rows = group.half(fitted=False)
        label = f"{rows.op} {rows.target.name}"
        logs = report(label, predict(rows), rows)
        shared.append(float(logs.mean()))
        own.append(float(logs.std()))
    say(
        f"{'':34s} sigma_shared {np.sqrt(np.mean(np.square(shared))):.3f}  "
        f"sigma_independent {np.sqrt(np.mean(np.square(own))):.3f}\n"
    )


Grid = Mapping[str, Sequence[float]]
AttrsRecord = TypeVar("AttrsRecord", bound=attrs.AttrsInstance)
Model = TypeVar("Model", bound=CostModel)


def grid_of(record: AttrsRecord, grid: Grid) -> Iterator[AttrsRecord]:
    """Yield *record* with its fields set to every combination of a grid."""
    for values in itertools.product(*grid.values()):
        yield attrs.evolve(record, **dict(zip(grid, values, strict=True)))


def best_of(models: Iterable[Model], groups: Sequence[Rows]) -> Model:
    """Return the model with the least mean |ln(predicted / measured)|."""
    rows = [group.half(fitted=True) for group in groups]

    def loss(model: Model) -> float:
        predict = of_model(model)
        return float(
            np.mean([np.abs(np.log(predict(r) / r.seconds)).mean() for r in rows])
        )

    return min(models, key=loss)


def fit_kind(op: str, groups: Sequence[Rows]) -> StreamKind:
    """Return the best parameters of one kind of streaming kernel."""
    models = (
        attrs.evolve(STREAMING, kinds={**STREAMING.kinds, op: kind})
        for kind in grid_of(STREAMING.kinds[op], KIND_GRID)
    )
    return best_of(models, groups).kinds[op]


def measured_shares(groups: Sequence[Rows]) -> None:
    """Print which share of the sheet's memory rate long elementwise rows reach."""
    for group in groups:
        rows = group.half(fitted=True)
        device = rows.target.device
        far = rows.table.bytes > 2 * device.l2.capacity_bytes
        rate = rows.table.bytes / (rows.seconds - rows.gap_s - device.kernel_floor_s)
        share = np.median((rate / device.memory.bytes_per_s)[far])
        near = rows.table.bytes < device.l2.capacity_bytes / 6
        near &= rows.table.bytes > device.l2.capacity_bytes / 12
        warm = np.median((rate / device.l2.bytes_per_s)[near]) if near.any() else np.nan
        say(f"share {rows.target.name:16s} memory {share:.3f}  L2 {warm:.3f}")


KIND_GRID = {
    "share": (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0),
    "rereads": (0.5, 1.0, 1.5, 2.0),
    "rows_in_flight": np.geomspace(0.5, 128, 17).tolist(),
}


def others(data: Path, *, fit: bool) -> None:
    """Score, and fit, streaming kernels."""
    streaming_file = data / STREAMING_FILE
    fp32 = data / FP32_FILE
    elementwise = [
        *load(fp32, "elementwise", "fp32", FP32_GPUS),
        *load(streaming_file, "elementwise", "bf16", ("h100-sxm-80g", "l40s")),
    ]
    score(of_model(STREAMING), elementwise)
    if fit:
        measured_shares(elementwise)
    for op in ("softmax", "layer_norm"):
        groups = list(load(fp32, op, "fp32", FP32_GPUS))
        score(of_model(STREAMING), groups)
        if fit:
            say("fitted:", fit_kind(op, groups))


def unseen(data: Path) -> None:
    """Score a GPU that is in no fit: all its rows, from its sheet alone."""
    models: tuple[CostModel, ...] = (STREAMING, STREAMING, STREAMING, GEMM)
    ops = ("elementwise", "softmax", "layer_norm", "gemm")
    for op, model in zip(ops, models, strict=True):
        for rows in load(data / FP32_FILE, op, "fp32", [UNSEEN_GPU]):
            report(f"{op} {UNSEEN_GPU}", of_model(model)(rows), rows)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    measurements = options.data / "measurements"
    others(measurements, fit=options.fit)
    unseen(measurements)


if __name__ == "__main__":
    main()
