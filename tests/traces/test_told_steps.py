"""Steps of traces in which the profiler marked none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.synthetic import LAUNCHED, Made, kernels, loop

from perfc.traces.events import Trace
from perfc.traces.kineto import read_trace


def _read(made: Made, tmp_path: Path) -> Trace:
    return read_trace(made.write(tmp_path / "t.json"))


def _lengths(trace: Trace) -> list[float]:
    return [step.end_us - step.start_us for step in trace.steps]


def _told(trace: Trace) -> list[str]:
    return [d.message for d in trace.diagnostics if d.code == "trace-steps-told"]


def test_steps_end_with_the_optimizer(tmp_path: Path) -> None:
    """What precedes the first end may be a part of a step, and is of none."""
    made = Made()
    for end_us in (100, 300, 550):
        kernels(made, end_us - 60, "a", "b")
        made.label("Optimizer.step#SGD.step", end_us - 30, 30)
        made.label("Optimizer.step#SGD.step", end_us - 29, 28)  # wrapped

    trace = _read(made, tmp_path)

    assert [200, 250] == _lengths(trace)
    assert ["step#0", "step#1"] == [step.name for step in trace.steps]
    (line,) = _told(trace)
    assert "2 steps are told by the ends of Optimizer.step#SGD.step" in line


@pytest.mark.parametrize("copy", [True, False])
def test_launches_that_repeat(copy: bool, tmp_path: Path) -> None:
    """From one copy of inputs, or wait for the device, to the next."""
    trace = _read(loop(*([LAUNCHED] * 5), copy=copy), tmp_path)

    assert [200] * 4 == _lengths(trace)
    name = "copies to it" if copy else "waits for the device"
    assert f"4 steps are told by launches that repeat between {name}" in _told(trace)[0]


def test_the_first_step_may_warm_up(tmp_path: Path) -> None:
    """Libraries try kernels out: what is unlike the others is no step."""
    made = loop(("a", "try", "b"), *([LAUNCHED] * 4), copy=True)

    assert [200] * 3 == _lengths(_read(made, tmp_path))


def test_several_copies_a_step(tmp_path: Path) -> None:
    """A step has as many as its inputs."""
    made = loop(*([("a",), ("b",)] * 5), copy=True)

    assert [400] * 4 == _lengths(_read(made, tmp_path))


@pytest.mark.parametrize(
    "made",
    [
        loop(("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "e"), copy=True),
        loop(LAUNCHED, LAUNCHED, copy=True),
        loop(*([LAUNCHED] * 3), LAUNCHED * 5, copy=True),
    ],
    ids=["unlike", "few", "a-long-end"],
)
def test_steps_that_cannot_be_told(made: Made, tmp_path: Path) -> None:
    """One line says so."""
    trace = _read(made, tmp_path)

    assert [] == _lengths(trace)
    (line,) = _told(trace)
    assert "its steps cannot be told" in line


def test_layers_are_no_steps(tmp_path: Path) -> None:
    """What repeats without a copy or a wait is within a step."""
    made = Made()
    for layer in range(8):
        kernels(made, 100.0 * layer, *LAUNCHED)

    assert [] == _lengths(_read(made, tmp_path))


def test_marked_steps_are_kept(tmp_path: Path) -> None:
    """Those of the profiler are what the user asked for."""
    made = loop(*([LAUNCHED] * 5), copy=True)
    made.label("ProfilerStep#3", 0, 1000)

    trace = _read(made, tmp_path)

    assert [3] == [step.number for step in trace.steps]
    assert [] == _told(trace)
