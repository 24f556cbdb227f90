"""TraceLens opens a prediction as it opens a measurement.

It is not on a package index: `pip install git+https://github.com/AMD-AGI/TraceLens`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.exporters.predictions import ONNX_FILE, replicas, report_of

from perfc.tools import Report

tracelens = pytest.importorskip(
    "TraceLens",
    reason="needs TraceLens: pip install git+https://github.com/AMD-AGI/TraceLens",
)

pytestmark = pytest.mark.filterwarnings("ignore")  # of another project
ROUNDING_US = 1e-3


def _analyzer(report: Report, folder: Path) -> Any:
    path = folder / "rank0.json.gz"
    report.to_trace(path if report.summary["comm_us"] == 0 else folder)
    return tracelens.TreePerfAnalyzer.from_file(str(path))


CASES: dict[str, Callable[[], Report]] = {
    "one-rank": lambda: report_of(str(ONNX_FILE)),
    "replicas": replicas,
}


@pytest.mark.parametrize("case", CASES)
def test_timeline_of_the_gpu(case: str, tmp_path: Path) -> None:
    """Busy time and communication of the GPU are those of the report."""
    report = CASES[case]()
    timeline = _analyzer(report, tmp_path).get_df_gpu_timeline()
    times_us = 1e3 * timeline.set_index("type")["time ms"]
    tolerance_us = ROUNDING_US * report.summary["launches"]

    assert report.summary["gpu_active_us"] == pytest.approx(
        times_us["busy_time"], abs=tolerance_us
    )
    assert report.summary["comm_us"] == pytest.approx(
        times_us["total_comm_time"], abs=tolerance_us
    )
