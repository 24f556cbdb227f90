"""Calibrating the CPU that the tests run on, for real, by the first of its shapes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tools.command import SMALL, Command

from perfc.costmodels import load_profile, load_target
from perfc.measure import kernel_run
from perfc.measure.suites import LARGE, suite
from perfc.measurements import MEASUREMENTS, read_rows

LARGE_SHAPES, SHAPES = 4, 40
"""Of the two suites, which begin with some of every op."""


def _first(name: str, *how: Any) -> list[Any]:
    return suite(name, *how)[: LARGE_SHAPES if name == LARGE else SHAPES]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let threads not wait for each other where other processes run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_this_cpu_is_calibrated(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are kept; the profile has rates, coefficients and host times."""
    monkeypatch.setattr(kernel_run, "suite", _first)
    output, kept = tmp_path / "here.toml", tmp_path / "rows.csv"
    arguments = ("--device", "cpu", "--minutes", "30", "--rows", str(kept))
    result = command("calibrate", *arguments, "-o", str(output))

    assert 0 == result.code
    rows = read_rows(kept, MEASUREMENTS)
    target, host = load_target(str(output)), load_profile(str(output))
    assert {"cpu"} == {row.target for row in rows}
    assert target.device.synchronous
    assert target.device.flops_per_s["fp32"] > 1e8
    assert "profile here" in target.sources["gpu.rates_tflops.fp32"]
    assert host.t1_s > 0
    assert 0 < host.t2_s.default_s < 1e-3
    assert "elementwise fp32" in result.out
    again = command("calibrate", "--from", str(kept), "-q", "-o", str(output))
    assert (0, "") == (again.code, again.out)
    report = command("analyze", *SMALL, "--target", str(output), "--format", "json")
    assert "here" == report.report["target"]["profile"]
    assert not [d for d in report.report["diagnostics"] if d["code"] == "extrapolated"]
