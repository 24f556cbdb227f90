"""What is predicted before anything is measured, and how it is kept."""

from __future__ import annotations

import importlib
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from tests.collection.made_up import (
    GEMM,
    MADE_BY,
    RELU,
    count,
    kernel,
    predicted,
    setting,
)

import perfc
from perfc.costmodels import load_target
from perfc.ir import Kernel, PerfcError
from perfc.measure.case import Case
from perfc.tools import Report

plan: Any = importlib.import_module("collection.plan")
predictions: Any = importlib.import_module("collection.predictions")
provenance: Any = importlib.import_module("collection.provenance")

H100 = "h100-sxm-80g"
DDP = plan.Planned(model="dlrm-ddp", batch=512, mode="inference")
RESNET = plan.Planned(model="resnet50", batch=2, mode="inference")


@attrs.frozen
class Call:
    """A kernel that is measured as it is, if it is."""

    case: Case | None
    kernels: tuple[Kernel, ...]


def _calls_of(report: Report, samples: int) -> list[Call]:
    """Return each kernel as a call; copies are measured by nobody."""
    (graph,) = report.results.graphs
    kernels = [graph.kernels[number] for number in graph.kernel if number >= 0]
    return [
        Call(None if k.op == "memcpy" else Case(k.op, k.dtype, k.params), (k,))
        for k in kernels
    ]


def _sums(rows: tuple[list[Any], list[Any], list[Any]]) -> list[float]:
    workloads, kernels, counts = rows
    sums = [0.0] * len(workloads)
    for row in counts:
        sums[row.workload] += row.count * kernels[row.kernel].kernel_us
    return sums


def test_a_setting() -> None:
    """A prediction is what `perfc analyze` says of the parameters of the row."""
    row = predictions.predicted(DDP, H100)

    assert ("dlrm-ddp", 80000, "none", 512, "host-pinned") == (
        *(row.model, row.params["rows"], row.params["max_rows"]),
        *(row.batch, row.inputs),
    )
    model = perfc.load("dlrm-ddp", batch=512)
    summary = perfc.analyze(model, H100).summary
    names = ("time_us", "time_us_p05", "time_us_p95", "gpu_active_us")
    assert [summary[name] for name in names] == pytest.approx(
        [getattr(row, name) for name in names], rel=1e-5
    )
    assert summary["launches"] == row.launches
    assert row.gpu_active_us_p05 < row.gpu_active_us < row.gpu_active_us_p95


def test_what_the_twin_runs() -> None:
    """A convolution and its batch norm are measured apart, so they are priced apart."""
    row = predictions.predicted(RESNET, H100)

    assert "separate" == row.params["batch_norm"]
    folded = perfc.analyze(perfc.load("resnet50", batch=2), H100)
    assert row.launches > folded.summary["launches"]


def test_tables_that_do_not_fit() -> None:
    """They are cut as `perfc measure` cuts them, and the cut model is predicted."""
    large = attrs.evolve(DDP, model="dlrm-ddp:rows=200000000")

    row = predictions.predicted(large, H100)

    usable = load_target(H100).device.memory.usable_bytes
    assert 0 < row.params["max_rows"] < row.params["rows"]
    assert row.peak_memory_bytes < usable


def test_the_time_of_the_gpu_alone() -> None:
    """Where a graph leaves the device no gaps, both intervals are about as wide."""
    large = plan.Planned(model="gpt2", batch=4, mode="inference", runtime="cudagraph")

    row = predictions.predicted(large, H100)

    step = np.array([row.time_us_p05, row.time_us_p95]) / row.time_us
    active = np.array([row.gpu_active_us_p05, row.gpu_active_us_p95])
    assert step == pytest.approx(active / row.gpu_active_us, rel=0.02)
    assert "efficient" == row.predicted_attention


def test_attention_that_is_priced() -> None:
    """The row says which algorithm was priced, whatever was asked for."""
    wanted = plan.Planned(
        model="gpt2", batch=1, mode="inference", dtype="bf16", attention="flash"
    )

    row = predictions.predicted(wanted, H100)

    assert ("flash", "flash") == (row.attention, row.predicted_attention)


@pytest.mark.parametrize("dtype", ["tf32", "amp-bf16"])
def test_training_in_narrow_types(dtype: str) -> None:
    """Autocast goes into the step before its backward pass."""
    narrow = attrs.evolve(DDP, mode="training", optimizer="sgd", dtype=dtype)

    row = predictions.predicted(narrow, H100)

    full = predictions.predicted(attrs.evolve(narrow, dtype="fp32"), H100)
    assert row.gpu_active_us != full.gpu_active_us


def test_calls() -> None:
    """Those of a setting take together what its GPU-active time holds but copies."""
    replayed = attrs.evolve(DDP, runtime="cudagraph")
    rows = predictions.predict_all(_calls_of, [DDP, replayed], [H100])

    workloads, kernels, counts = rows
    report = perfc.analyze(perfc.load("dlrm-ddp", batch=512), H100)
    (graph,), (costs,) = report.results.graphs, report.results.costs
    launched = [number for number in graph.kernel if number >= 0]
    copied = 1e6 * sum(
        costs.seconds[n] for n in launched if graph.kernels[n].op == "memcpy"
    )
    assert copied > 0
    sums = _sums(rows)
    assert sums == pytest.approx(
        [row.gpu_active_us - copied for row in workloads], rel=1e-4
    )
    assert len(kernels) == len({row.key for row in kernels})
    assert Counter({0: len(counts) // 2, 1: len(counts) // 2}) == Counter(
        row.workload for row in counts
    )


def test_a_call_in_a_graph() -> None:
    """A gap follows each of its kernels; its interval is that of the kernels."""
    model = perfc.load("dlrm-ddp", batch=512)
    report = perfc.analyze(model, H100)
    (graph,) = report.results.graphs
    first, second = graph.kernels[1:3]

    one = predictions.predicted_call(report, ("gemm", "fp32", GEMM), [first])
    both = predictions.predicted_call(report, ("gemm", "fp32", GEMM), [first, second])

    gap_us = load_target(H100).device.graph_gap_s * 1e6
    assert gap_us == pytest.approx(one.graph_us - one.kernel_us, rel=1e-3)
    assert 2 * gap_us == pytest.approx(both.graph_us - both.kernel_us, rel=1e-3)
    costs = report.results.costs[0]
    assert both.kernel_us == pytest.approx(1e6 * costs.seconds[1:3].sum(), rel=1e-5)
    sigma = np.hypot(costs.sigma_shared[1], costs.sigma_independent[1])
    width = np.log(one.kernel_us_p95 / one.kernel_us)
    assert 1.6448536 * sigma == pytest.approx(width, rel=1e-4)


def _made() -> Any:
    kernels = [kernel("gemm", GEMM, 20.0), kernel("elementwise", RELU, 5.0, "l40s")]
    settings = [setting(), setting(target="l40s")]
    counts = [count(0, 0, 3), count(1, 1, 2)]
    return predicted.Predictions(settings, kernels, counts, MADE_BY)


def test_tables_are_kept(tmp_path: Path) -> None:
    """What was written is read back, with what made it and how often calls are made."""
    made = _made()
    made.write(tmp_path / "made")

    found = predicted.read_predictions(tmp_path / "made")

    assert (made.workloads, made.kernels, made.counts) == (
        *(found.workloads, found.kernels),
        found.counts,
    )
    assert MADE_BY == {name: found.manifest[name] for name in MADE_BY}
    assert {made.workloads[0].key: {("gemm", "fp32", GEMM): 3}} == found.calls(H100)
    assert {made.workloads[1].key: {("elementwise", "fp32", RELU): 2}} == found.calls(
        "l40s"
    )


def test_six_digits() -> None:
    """More would change from one machine to another."""
    assert [1.23457, 1234570.0] == [*map(predicted.rounded, (1.23456789, 1234567.89))]


@pytest.mark.parametrize("name", ["workloads.csv", "kernels.csv", "counts.csv"])
def test_a_table_that_was_changed(tmp_path: Path, name: str) -> None:
    """A record is read as it was made, or not at all."""
    _made().write(tmp_path)
    table = tmp_path / name
    table.write_text(table.read_text().replace("3", "4"))

    with pytest.raises(
        PerfcError, match=rf"{name} is not the table that manifest\.json"
    ):
        predicted.read_predictions(tmp_path)


def test_predictions_are_not_made_twice(tmp_path: Path) -> None:
    """Where there are some already, it is an error that says why."""
    predicted.check_none(tmp_path)
    _made().write(tmp_path)

    with pytest.raises(
        PerfcError, match="has predictions already; made after there are"
    ):
        predicted.check_none(tmp_path)


def test_seconds_to_measure() -> None:
    """A second to set up, five iterations to warm up and thirty that are timed."""
    settings = [setting(time_us=10_000.0), setting(time_us=100_000.0)]

    assert 2 + 0.35 + 3.5 == pytest.approx(predicted.measuring_seconds(settings))


def _git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
    done = subprocess.run(
        ["git", *who, *arguments],  # noqa: S607
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def _checkout(folder: Path, *files: str) -> Path:
    _git(folder, "init", "--quiet")
    for name in files:
        (folder / name).write_text("one\n")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message", "One")
    return folder


def test_what_made_them(tmp_path: Path) -> None:
    """The whole hash of the commit stands in the manifest, with day and versions."""
    folder = _checkout(tmp_path, "model.py")

    made_by = provenance.provenance(folder)

    assert _git(folder, "rev-parse", "HEAD") == made_by["perfc_commit"]
    assert ["date", "numpy", "perfc_commit", "python"] == sorted(made_by)


@pytest.mark.parametrize("name", ["model.py", "new.py"])
def test_a_checkout_with_changes(tmp_path: Path, name: str) -> None:
    """A commit that did not make the predictions is not named: commit first."""
    folder = _checkout(tmp_path, "model.py")
    (folder / name).write_text("two\n")

    with pytest.raises(PerfcError, match=rf"^{name}: not committed; .* commit first$"):
        provenance.commit_of(folder)


def test_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git, or in a folder that it does not know, there is no commit to name."""
    with pytest.raises(PerfcError, match=r"git status in .*: fatal: not a git repo"):
        provenance.commit_of(tmp_path)

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        PerfcError, match=r"^git, which says what commit predicts: No su"
    ):
        provenance.commit_of(tmp_path)
