"""HolisticTraceAnalysis opens a prediction as it opens a measurement."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.exporters.predictions import (
    ONNX_FILE,
    replayed,
    replicas,
    report_of,
    two_ranks,
)

from perfc.tools import Report

hta = pytest.importorskip(
    "hta.trace_analysis", reason="needs HolisticTraceAnalysis: `make install`"
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of another project
ROUNDING_US = 1e-3
INTEGER_US = 1.0
"""HTA keeps some sums as integers."""


@pytest.fixture
def report() -> Report:
    """A prediction with gaps, copies and kernels of several kinds."""
    return report_of(str(ONNX_FILE))


@pytest.fixture
def analysis(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """HTA's analysis of its trace."""
    return _analysis(report, tmp_path, monkeypatch)


def _analysis(report: Report, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Open the trace, nanoseconds not rounded away."""
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    path = folder / "rank0.json.gz"
    report.to_trace(path)
    return hta.TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(folder))


def test_temporal_breakdown(analysis: Any, report: Report) -> None:
    """Busy and idle time of the GPU are the report's."""
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    tolerance_us = ROUNDING_US * report.summary["launches"]
    busy_us = row["compute_time(us)"] + row["non_compute_time(us)"]

    assert report.summary["gpu_active_us"] == pytest.approx(busy_us, abs=tolerance_us)
    # HTA counts from the first kernel to the end of the last.
    copies_us = sum(
        node["duration_us"] for node in report.nodes if node["cost_model"] == "memcpy"
    )
    assert copies_us == pytest.approx(row["non_compute_time(us)"], abs=tolerance_us)


def test_kernel_breakdown(analysis: Any, report: Report) -> None:
    """Kernels sum up to the report's busy time; copies count as memory."""
    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=99)
    busy_us = kernels["sum (us)"].sum()

    assert {"COMPUTATION", "MEMORY"} == set(kinds["kernel_type"])
    assert report.summary["gpu_active_us"] == pytest.approx(busy_us, abs=INTEGER_US)
    gemm_us = sum(n["duration_us"] for n in report.nodes if n["op"] == "aten::bmm")
    found = kernels[kernels["name"] == "aten::bmm gemm fp32"]["sum (us)"].sum()
    assert gemm_us == pytest.approx(found, abs=INTEGER_US)


def test_idle_time_breakdown(analysis: Any, report: Report) -> None:
    """A prediction that the host limits is idle because of the host."""
    idle, _ = analysis.get_idle_time_breakdown(visualize=False)
    by_category = idle.set_index("idle_category")["idle_time"]

    assert "host" == report.summary["bound"]
    assert "host_wait" == by_category.idxmax()
    assert by_category.sum() <= report.summary["gpu_idle_us"]


def test_launch_statistics(analysis: Any, report: Report) -> None:
    """Every device task is found with its call, and starts after it."""
    stats = analysis.get_cuda_kernel_launch_stats(visualize=False)[0]

    assert report.summary["launches"] == len(stats)
    assert (stats["launch_delay"] > 0).all()


def test_cuda_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that one call launches are all found, and are the report's."""
    report = replayed()
    analysis = _analysis(report, tmp_path, monkeypatch)
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=99)

    busy_us = kernels["sum (us)"].sum()
    assert report.summary["gpu_active_us"] == pytest.approx(busy_us, abs=INTEGER_US)
    assert report.summary["gpu_active_us"] == pytest.approx(
        row["compute_time(us)"] + row["non_compute_time(us)"],
        abs=ROUNDING_US * report.summary["launches"],
    )


def _folder(report: Report, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Open a folder with a trace of each rank, as profilers write one."""
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    report.to_trace(folder)
    return hta.TraceAnalysis(trace_dir=str(folder))


def test_a_folder_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rank of eight is there, as busy as the report says."""
    report = replicas()
    analysis = _folder(report, tmp_path, monkeypatch)
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    tolerance_us = ROUNDING_US * report.summary["launches"]

    assert list(range(8)) == sorted(breakdown["rank"])
    for _, row in breakdown.iterrows():
        busy_us = row["compute_time(us)"] + row["non_compute_time(us)"]
        assert report.summary["gpu_active_us"] == pytest.approx(
            busy_us, abs=tolerance_us
        )
        # HTA counts from the first kernel to the end of the last.
        assert row["kernel_time(us)"] <= report.time_us


def test_kernels_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectives take on every rank what the report says they take."""
    report = replicas()
    analysis = _folder(report, tmp_path, monkeypatch)
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=99)

    sums = kernels.groupby(["rank", "kernel_type"])["sum (us)"].sum()
    comm_us = [sums[rank, "COMMUNICATION"] for rank in range(8)]
    assert [report.summary["comm_us"]] * 8 == pytest.approx(comm_us, abs=INTEGER_US)
    all_us = [sums[rank].sum() for rank in range(8)]
    on_device = [n for n in report.nodes if n["cost_model"] != "host-profile"]
    expected_us = sum(node["duration_us"] for node in on_device)
    assert [expected_us] * 8 == pytest.approx(all_us, abs=INTEGER_US)


def test_overlap_of_communication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTA finds as much communication beside kernels as the report hides.

    The report also calls hidden what lies beside copies.
    """
    report = replicas()
    analysis = _folder(report, tmp_path, monkeypatch)
    shares = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"]

    text = gzip.decompress((tmp_path / "rank0.json.gz").read_bytes())
    slices = [
        (e["name"], e["cat"], e["ts"], e["ts"] + e["dur"])
        for e in json.loads(text)["traceEvents"]
        if e.get("cat") in {"kernel", "gpu_memcpy"}
    ]
    copies = [(start, end) for _, cat, start, end in slices if cat == "gpu_memcpy"]
    sent = [(start, end) for name, _, start, end in slices if name.startswith("nccl")]
    summary = report.summary
    hidden_us = summary["comm_us"] - summary["exposed_comm_us"] - _beside(sent, copies)
    expected = 100 * hidden_us / summary["comm_us"]
    assert 0 < summary["exposed_comm_us"] < summary["comm_us"]
    assert [expected] * 8 == pytest.approx(list(shares), abs=0.006)  # two digits


def _beside(
    first: Iterable[tuple[float, float]], second: Iterable[tuple[float, float]]
) -> float:
    """Return how long spans of both run; those of each do not overlap."""
    others = list(second)
    return sum(
        max(0.0, min(end, other_end) - max(start, other_start))
        for start, end in first
        for other_start, other_end in others
    )


def test_ranks_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks of a folder are those of the prediction, each with its own kernels."""
    report = two_ranks()
    analysis = _folder(report, tmp_path, monkeypatch)
    breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank")

    assert {0, 3} == set(breakdown.index)
    kernels_us = [
        next(
            node["duration_us"]
            for node in report.nodes
            if node["rank"] == rank and node["id"] == "node"
        )
        for rank in (0, 3)
    ]
    assert [30.0, 50.0] == pytest.approx(kernels_us)
    assert kernels_us == pytest.approx(
        list(breakdown.loc[[0, 3], "compute_time(us)"]), abs=2 * ROUNDING_US
    )
