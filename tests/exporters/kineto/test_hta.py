"""HolisticTraceAnalysis opens a prediction as it opens a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.exporters.predictions import ONNX_FILE, replayed, report_of

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
