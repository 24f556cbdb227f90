"""What the phases of a step take."""

from __future__ import annotations

import pytest

import perfc

PHASES = ["forward", "loss", "backward", "optimizer"]


@pytest.fixture(scope="module")
def step() -> perfc.Report:
    """Return a step of training."""
    model = perfc.load("dlrm-ddp", batch=256, mode="training", optimizer="adagrad")
    return perfc.analyze(model, "v100")


@pytest.mark.parametrize("runtime", ["eager", "cudagraph", "compiled"])
def test_phases_sum_to_the_time(runtime: str) -> None:
    """Each second of the critical path, and each launch, is in one phase."""
    model = perfc.load("bert-base:layers=1", batch=2, mode="training")
    report = perfc.analyze(model, "v100", runtime=runtime)
    phases, summary = report.phases, report.summary

    assert [*PHASES, ""] == [entry["phase"] for entry in phases]
    total_us = sum(entry["time_us"] for entry in phases)
    assert pytest.approx(report.time_us) == total_us
    assert summary["launches"] == sum(entry["launches"] for entry in phases)
    host_us = sum(entry["host_us"] for entry in phases)
    assert pytest.approx(summary["host_us"]) == host_us


def test_the_highest_phase_has_the_peak(step: perfc.Report) -> None:
    """The peak of the step is that of the phase where it is."""
    peaks = {e["phase"]: e["peak_memory_bytes"] for e in step.phases}

    assert step.memory["peak_bytes"] == max(peaks.values())
    assert step.memory["peak_bytes"] == peaks[step.memory["at_phase"]]


def test_a_forward_pass_is_one_phase() -> None:
    """Inference has no table of phases."""
    report = perfc.analyze(perfc.load("dlrm-ddp", batch=256), "v100")

    assert {"forward", ""} == {entry["phase"] for entry in report.phases}
    assert "Phases of the step" not in str(report)


def test_tables_say_what_phases_take(step: perfc.Report) -> None:
    """Text, Markdown and HTML have a row per phase, and the peak by kind."""
    place = f"{step.memory['at_phase']}, {step.memory['at_node']}"
    for text in (str(step), str(step.export("md")), step.to_html()):
        assert "Phases of the step" in text
        assert "Device memory at its peak" in text
        for word in (*PHASES, "gradients of parameters", "state of the optimizer"):
            assert word in text
    assert place in step.to_html()
