"""Calibrating the CPU that the tests run on, for real, in a few seconds."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.tools.command import SMALL, Command

from perfc.costmodels import load_profile, load_target
from perfc.measurements import MEASUREMENTS, read_rows


def test_this_cpu_is_calibrated(command: Command, tmp_path: Path) -> None:
    """Rows are kept; the profile has rates, coefficients and host times."""
    # The first step of an optimizer does so, which takes seconds of the few there are.
    importlib.import_module("torch._dynamo")
    output, kept = tmp_path / "here.toml", tmp_path / "rows.csv"
    arguments = ("--device", "cpu", "--minutes", "0.3", "--rows", str(kept))
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
