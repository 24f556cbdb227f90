"""The built-in cost models against public measurements, with loose bars.

The data lie beside the repository or where PERFC_DATA says; without them these
tests are skipped. docs/accuracy.md has the whole picture.
"""

from __future__ import annotations

import csv
import json
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.costmodels.signatures import ALL_MODELS, bag, copy, gemm, over_rows

from perfc.costmodels import load_target, price
from perfc.fitting.errors import errors_of
from perfc.ir import Kernel

DATA = Path(os.environ.get("PERFC_DATA", Path(__file__).parents[3] / "shared" / "data"))
V100_TRACES = DATA / "dlrm_v100" / "gemm_kernel_times_v100.csv"
MEASUREMENTS = DATA / "measurements"
# The traces' V100 was locked at this clock.
LIN_V100 = load_target("v100-sxm2-16g", {"gpu.sm_clock_mhz": "1297"})


def _need(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"no measurements: {path.name} (set PERFC_DATA to their folder)")
    return path


def _ratios(
    kernels: list[Kernel], measured_us: list[float], target: str = ""
) -> NDArray[np.float64]:
    machine = load_target(target) if target else LIN_V100
    measured_s = np.array(measured_us, dtype=np.float64) * 1e-6
    ratios: NDArray[np.float64] = (
        price(kernels, machine, ALL_MODELS).seconds / measured_s
    )
    return ratios


@pytest.mark.parametrize(
    ("workload", "mape", "total"),
    [("DLRM_MLPerf", 0.16, 0.04), ("DLRM_default", 0.14, 0.07), ("FB RM", 0.24, 0.17)],
)
def test_gemms_in_traces_of_v100(workload: str, mape: float, total: float) -> None:
    """GEMM kernels of DLRM training: each within tens, together within a fifth."""
    with _need(V100_TRACES).open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["source"].startswith(workload)]
    kernels = [
        gemm(
            int(r["M"]),
            int(r["N"]),
            int(r["K"]),
            b=int(r["batch"]),
            layout="nt" if "_tn" in r["kernel"].lower() else "nn",
        )
        for r in rows
    ]
    measured_us = [float(r["mean_us"]) for r in rows]

    ratios = _ratios(kernels, measured_us)

    assert np.abs(ratios - 1).mean() < mape
    assert pytest.approx(1, abs=total) == np.average(ratios, weights=measured_us)


# Kernel times in the trace of DLRM_default, batch 2048 (2021-08), and nvprof
# samples of the same lookup kernel; indices of 4 bytes.
TRACED = [
    (528.3, copy(6_553_600)),
    (339.4, copy(4_194_304)),
    (23.4, over_rows("elementwise", 2048, 1024)),
    (11.9, over_rows("elementwise", 2048, 512)),
    (6.3, over_rows("elementwise", 2048, 256)),
    (34.7, over_rows("elementwise", 2048, 1024, inputs=2)),
    (19.4, over_rows("concat", 2048, 576)),
    (92.5, over_rows("concat", 2048, 27 * 128)),
    (15.1, over_rows("concat", 2048, 479)),
    (20.7, over_rows("gather", 2048, 351)),
    (521.8, bag(2048, 8, 10**6, 100, 64, index_bytes=4)),
    (20.9, bag(128, 32, 1000, 8, 128, index_bytes=4)),
    (40.4, bag(128, 32, 1000, 8, 256, index_bytes=4)),
    (7.5, bag(128, 32, 1000, 8, 64, index_bytes=4)),
]


def test_streams_and_lookups_in_traces_of_v100() -> None:
    """Lookups, copies and streams of DLRM training are within 10 % on average."""
    ratios = _ratios([kernel for _, kernel in TRACED], [us for us, _ in TRACED])

    assert np.abs(ratios - 1).mean() < 0.10
    assert np.abs(ratios - 1).max() < 0.40


@pytest.mark.parametrize(
    ("file", "op", "dtype", "target", "gmae"),
    [
        ("ops_fp32_seen_gpus", "gemm", "fp32", "a100-pcie-40g", 0.15),
        ("ops_fp32_seen_gpus", "gemm", "fp32", "v100-pcie-32g", 0.25),
        ("ops_fp32_seen_gpus", "elementwise", "fp32", "a100-pcie-40g", 0.10),
        ("ops_fp32_seen_gpus", "elementwise", "fp32", "t4", 0.10),
        ("gemm_h100-sxm-80g", "gemm", "bf16", "h100-sxm-80g", 0.20),
        ("gemm_a100-sxm-80g", "gemm", "bf16", "a100-sxm-80g", 0.20),
    ],
)
def test_measured_rows(
    file: str, op: str, dtype: str, target: str, gmae: float
) -> None:
    """Long kernels of public tables are predicted within loose bars."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = _need(MEASUREMENTS / f"{file}.parquet")
    filters = [
        ("op", "==", op),
        ("dtype", "==", dtype),
        ("target", "==", target),
        ("latency_us", ">", 300.0),
    ]
    rows = parquet.read_table(path, filters=filters).to_pylist()[::5]
    kernels: list[Kernel] = []
    for row in rows:
        p = json.loads(row["params"])
        if op == "gemm":
            kernel = gemm(
                p["m"],
                p["n"],
                p["k"],
                b=p["b"],
                dtype=dtype,
                math=dtype,
                layout=p.get("layout", "nn"),
            )
        else:
            kernel = over_rows(op, p["rows"], p["cols"], inputs=p["tensor_inputs"])
        kernels.append(kernel)

    ratios = _ratios(kernels, [row["latency_us"] for row in rows], target)

    assert np.expm1(np.abs(np.log(ratios)).mean()) < gmae


FAMILIES = {
    "concat": 0.06,
    "copy d2d": 0.04,
    "copy d2h": 0.04,
    "copy h2d": 0.07,
    "elementwise": 0.09,
    "embedding bag": 0.08,
    "embedding bag + SGD": 0.17,
    "gather": 0.07,
    "index add": 0.05,
    "optimizer": 0.06,
    "product backward": 0.13,
    "product batched": 0.21,
    "product forward": 0.08,
    "reduction": 0.08,
}
"""Geometric means of absolute errors in traces of DLRM, all rows; 0.07 is the bar."""


@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_kernels_in_traces_of_dlrm(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `benchmarks/published/dlrm_kernels.py` prints them."""
    folder = _need(V100_TRACES).parent
    monkeypatch.syspath_prepend(
        str(Path(__file__).parents[2] / "benchmarks" / "published")
    )
    script = runpy.run_module("dlrm_kernels")
    rows = [row for row in script["read"](folder)[0] if row.family == family]
    predicted = script["predicted_us"](rows, LIN_V100)

    errors = errors_of(predicted, np.array([row.us for row in rows]))

    assert errors is not None
    assert errors.geomean_ape < FAMILIES[family]
