"""What was predicted before anything was measured: the tables, and what made them.

A folder holds `workloads.csv`, one row a setting of the plan and target, `kernels.csv`,
one row a call that the suite `workloads` measures alone and target, `counts.csv`, how
often each setting makes each call, and `manifest.json` with the commit that made them
and a hash of each. They are a record: not made again once there are rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import attrs

from collection.launches import Workload
from perfc.ir import PerfcError, Record
from perfc.ir.support import write_file
from perfc.measurements import (
    Measurement,
    Schema,
    WorkloadMeasurement,
    read_rows,
    write_rows,
)

SCHEMA = "perfc.predictions/1"
FOLDER = Path(__file__).with_name("predictions")
WORKLOADS_TABLE, KERNELS_TABLE = "workloads.csv", "kernels.csv"
COUNTS_TABLE, MANIFEST = "counts.csv", "manifest.json"

_TABLES = (WORKLOADS_TABLE, KERNELS_TABLE, COUNTS_TABLE)

INPUTS = "host-pinned"
"""Place of the inputs of all settings: pinned memory of the host."""

AUTO = "auto"
"""Attention as PyTorch chooses; so are rows of before it was told."""

Key: TypeAlias = tuple[object, ...]
"""What tells rows of different settings on one target apart."""

KernelKey: TypeAlias = tuple[str, str, Record]
"""Op, dtype and sizes, which tell rows of different kernels on one target apart."""

_SETUP_S = 1.0
_ITERATIONS = 35
"""To warm up, and timed."""


@attrs.frozen(kw_only=True)
class Prediction:
    """One iteration of one setting of the plan on one target.

    Attributes:
        target: Name of the target.
        model: Built-in workload.
        params: All its parameters, as measured rows have them.
        mode: training or inference.
        runtime: eager or cudagraph.
        dtype: What it computes in.
        batch: Samples in the batch.
        optimizer: Of a training step; empty in inference.
        inputs: Where inputs are when the iteration starts.
        attention: `auto`, or what PyTorch is told to take.
        predicted_attention: Algorithms of the attention kernels that were priced.
        time_us: Wall time of the iteration; `_p05` and `_p95` are its 90 % interval.
        gpu_active_us: How long the GPU is busy, copies included; likewise.
        peak_memory_bytes: Most memory that tensors take.
        launches: Kernels and copies.
        bound: What limits it: host, compute, memory or network.

    """

    target: str
    model: str
    params: Record
    mode: str
    runtime: str
    dtype: str
    batch: int
    optimizer: str
    inputs: str
    attention: str
    predicted_attention: str
    time_us: float
    time_us_p05: float
    time_us_p95: float
    gpu_active_us: float
    gpu_active_us_p05: float
    gpu_active_us_p95: float
    peak_memory_bytes: int
    launches: int
    bound: str

    @property
    def key(self) -> Key:
        """What its measured row has, too."""
        return setting_key(self)

    def __str__(self) -> str:
        return setting_text(self)


@attrs.frozen(kw_only=True)
class KernelPrediction:
    """One call of the suite `workloads` on one target: a kernel, or a few.

    Attributes:
        target: Name of the target.
        op: Canonical name.
        dtype: What it computes in.
        params: Its sizes, as measured rows have them.
        kernel_us: Time of the kernels alone; `_p05` and `_p95` are its 90 % interval.
        graph_us: Time per call in the replay of a CUDA graph; likewise.

    """

    target: str
    op: str
    dtype: str
    params: Record
    kernel_us: float
    kernel_us_p05: float
    kernel_us_p95: float
    graph_us: float
    graph_us_p05: float
    graph_us_p95: float

    @property
    def key(self) -> KernelKey:
        """What its measured row has, too."""
        return kernel_key(self)


@attrs.frozen(kw_only=True)
class CallCount:
    """How often one setting makes a call.

    Attributes:
        workload: Row of the setting in `workloads.csv`, from 0.
        kernel: Row of the call in `kernels.csv`, of the same target.
        count: How often.

    """

    workload: int
    kernel: int
    count: int


PREDICTIONS = Schema("perfc.predictions/1", Prediction)
KERNEL_PREDICTIONS = Schema("perfc.kernel_predictions/1", KernelPrediction)
COUNTS = Schema("perfc.call_counts/1", CallCount)


LATER: Mapping[str, object] = {"dropout": "0"}
"""Parameters that rows lack which were written before models had them, and their value
there."""


def setting_key(row: Prediction | WorkloadMeasurement | Workload) -> Key:
    """Return the key that tells the setting of a row from others on its target."""
    params = {
        name: value
        for name, value in row.params.items()
        if name not in LATER or value != LATER[name]
    }
    own = (row.model, Record(params), row.mode, row.runtime, row.dtype, row.batch)
    inputs = INPUTS if isinstance(row, Workload) else row.inputs
    return (*own, row.optimizer, inputs, row.attention or AUTO)


def setting_text(row: Prediction | WorkloadMeasurement) -> str:
    """Return a setting in words, without the parameters that all of a model share."""
    mode = f"{row.mode} {row.optimizer}".strip()
    host = ["tables on the host"] if row.params.get("places") == "host" else []
    forced = [] if row.attention in ("", AUTO) else [f"{row.attention} attention"]
    words = (row.model, f"batch {row.batch}", mode, row.dtype, row.runtime)
    return ", ".join([*words, *host, *forced])


def kernel_key(row: KernelPrediction | Measurement) -> KernelKey:
    """Return the key that tells the kernel of a row from others on its target."""
    return (row.op, row.dtype, row.params)


def measuring_seconds(predictions: Iterable[Prediction]) -> float:
    """Return how long it takes to measure some settings, set-up included."""
    return sum(_SETUP_S + _ITERATIONS * p.time_us * 1e-6 for p in predictions)


@attrs.frozen
class Predictions:
    """A folder of predictions.

    Attributes:
        workloads: Whole iterations.
        kernels: Kernels alone.
        counts: How many of these each of those has.
        manifest: What made them.

    """

    workloads: Sequence[Prediction]
    kernels: Sequence[KernelPrediction]
    counts: Sequence[CallCount]
    manifest: Mapping[str, Any]

    def calls(self, target: str) -> dict[Key, dict[KernelKey, int]]:
        """Return how often each setting of a target makes each call of the suite."""
        found: dict[Key, dict[KernelKey, int]] = {}
        for row in self.counts:
            setting = self.workloads[row.workload]
            if setting.target == target:
                calls = found.setdefault(setting.key, {})
                calls[self.kernels[row.kernel].key] = row.count
        return found

    def write(self, folder: Path) -> None:
        """Write the tables, then the manifest, with a hash of each table.

        Raises:
            PerfcError: the folder cannot be written.

        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"cannot make {folder}: {error.strerror or error}"
            raise PerfcError(msg) from None
        write_rows(folder / WORKLOADS_TABLE, self.workloads, PREDICTIONS)
        write_rows(folder / KERNELS_TABLE, self.kernels, KERNEL_PREDICTIONS)
        write_rows(folder / COUNTS_TABLE, self.counts, COUNTS)
        tables = {name: {"sha256": _sha256(folder / name)} for name in _TABLES}
        content = {"schema": SCHEMA, **self.manifest, "tables": tables}
        write_file(folder / MANIFEST, json.dumps(content, indent=1) + "\n")


def check_none(folder: Path) -> None:
    """Make sure that a folder has no predictions yet.

    Raises:
        PerfcError: it has.

    """
    if (folder / MANIFEST).exists():
        msg = (
            f"{folder} has predictions already; made after there are rows they predict "
            "nothing: --force writes over them"
        )
        raise PerfcError(msg)


def read_predictions(folder: Path) -> Predictions:
    """Read a folder of predictions.

    Raises:
        PerfcError: it is none, or a table is not what the manifest says was predicted.

    """
    manifest = read_manifest(folder, SCHEMA, "predictions")
    for name in _TABLES:
        if _sha256(folder / name) != _noted_sha256(manifest, name):
            msg = f"{folder / name} is not the table that {MANIFEST} has the hash of"
            raise PerfcError(msg)
    return Predictions(
        read_rows(folder / WORKLOADS_TABLE, PREDICTIONS),
        read_rows(folder / KERNELS_TABLE, KERNEL_PREDICTIONS),
        read_rows(folder / COUNTS_TABLE, COUNTS),
        manifest,
    )


def read_manifest(folder: Path, schema: str, what: str) -> dict[str, Any]:
    """Return the `manifest.json` of a folder.

    Raises:
        PerfcError: there is none, or it is of something else than *schema*.

    """
    path = folder / MANIFEST
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{folder} is no folder of {what}: {path}: {error.strerror or error}"
        raise PerfcError(msg) from None
    except ValueError as error:
        msg = f"{path} is damaged: {error}"
        raise PerfcError(msg) from None
    manifest = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if manifest.get("schema") != schema:
        msg = f"{path}: expected schema {schema}, found {manifest.get('schema')!r}"
        raise PerfcError(msg)
    return manifest


def _noted_sha256(manifest: Mapping[str, Any], name: str) -> object:
    try:
        return manifest["tables"][name]["sha256"]
    except (KeyError, TypeError):
        return None


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise PerfcError(msg) from None


def rounded(value: float) -> float:
    """Return six significant digits: more would differ from machine to machine."""
    return float(f"{value:.6g}")
