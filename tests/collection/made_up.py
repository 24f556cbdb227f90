"""A folder of predictions and one of collected rows, small enough for exact scores."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfc.ir import Record
from perfc.measurements import (
    MEASUREMENTS,
    WORKLOADS,
    Measurement,
    WorkloadMeasurement,
    write_rows,
)

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
predicted: Any = importlib.import_module("collection.predicted")
launched: Any = importlib.import_module("collection.launches")

TARGET = "h100-sxm-80g"
MADE_BY = {"perfc_commit": "0123456789abcdef", "date": "2026-11-26"}
RELU = Record({"kind": "relu", "rows": 64, "cols": 64, "tensor_inputs": 1})
GEMM = Record({"b": 1, "m": 64, "n": 64, "k": 64})


def setting(model: str = "gpt2", *, runtime: str = "eager", **other: Any) -> Any:
    """Predict 100 us, 50 to 150, of which the GPU works 80, 70 to 90."""
    fields = {
        "target": TARGET,
        "model": model,
        "params": Record({"layers": 12}),
        "mode": "inference",
        "runtime": runtime,
        "dtype": "fp32",
        "batch": 4,
        "optimizer": "",
        "inputs": "host-pinned",
        "attention": "auto",
        "predicted_attention": "",
        "time_us": 100.0,
        "time_us_p05": 50.0,
        "time_us_p95": 150.0,
        "gpu_active_us": 80.0,
        "gpu_active_us_p05": 70.0,
        "gpu_active_us_p95": 90.0,
        "peak_memory_bytes": 1,
        "launches": 12,
        "bound": "host",
    }
    return predicted.Prediction(**fields | other)


def kernel(op: str, params: Record, kernel_us: float, target: str = TARGET) -> Any:
    """Predict a kernel alone, half as long to twice as long; in a graph 1 us more."""
    return predicted.KernelPrediction(
        target=target,
        op=op,
        dtype="fp32",
        params=params,
        kernel_us=kernel_us,
        kernel_us_p05=kernel_us / 2,
        kernel_us_p95=kernel_us * 2,
        graph_us=kernel_us + 1,
        graph_us_p05=kernel_us / 2 + 1,
        graph_us_p95=kernel_us * 2 + 1,
    )


def count(workload: int, kernel: int, count: int) -> Any:
    """Say how often a setting makes a call."""
    return predicted.CallCount(workload=workload, kernel=kernel, count=count)


def step(of: Any, time_us: float, active_us: float | None) -> WorkloadMeasurement:
    """Return the measured row of a setting."""
    return WorkloadMeasurement(
        target=of.target,
        model=of.model,
        params=of.params,
        mode=of.mode,
        runtime=of.runtime,
        dtype=of.dtype,
        batch=of.batch,
        time_us=time_us,
        gpu_active_us=active_us,
        optimizer=of.optimizer,
        inputs=of.inputs,
        attention=of.attention,
    )


def timed(op: str, params: Record, us: float, timing: str = "graph") -> Measurement:
    """Return the measured row of a kernel."""
    return Measurement(
        target=TARGET,
        op=op,
        dtype="fp32",
        params=params,
        latency_us=us,
        timing=timing,
        source="perfc measure",
    )


def launches(of: Any, *categories: str) -> Any:
    """Return one iteration of a setting as a trace has it: a call and what it ran."""
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#0"}
    events: list[dict[str, object]] = [{**mark, "ts": 0.0, "dur": 1000.0}]
    for number, category in enumerate(categories):
        same = {"ph": "X", "ts": 1.0 + number, "dur": 1.0}
        args = {"correlation": number, "stream": 7}
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel"}
        events.append({**same, **call, "args": args})
        events.append({**same, "cat": category, "name": "kernel", "args": args})
    workload = launched.Workload(
        model=of.model,
        params=of.params,
        batch=of.batch,
        mode=of.mode,
        runtime=of.runtime,
        dtype=of.dtype,
        optimizer=of.optimizer,
        attention=of.attention,
    )
    return workload, events


def collect(
    folder: Path,
    steps: Sequence[WorkloadMeasurement] | None = None,
    kernels: Sequence[Measurement] | None = None,
    traces: Sequence[Any] | None = None,
    target: str = TARGET,
) -> Path:
    """Write a folder as `benchmarks/collect.py` does, without the tables not given."""
    folder.mkdir(exist_ok=True)
    manifest = {"schema": "perfc.collection/2", "target": target}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if steps is not None:
        write_rows(folder / "workloads.parquet", steps, WORKLOADS)
    if kernels is not None:
        write_rows(folder / "kernels.parquet", kernels, MEASUREMENTS)
    if traces is not None:
        table = launched.LaunchTable(folder / "launches.parquet")
        for workload, events in traces:
            table.add(workload, events)
        table.write()
    return folder
