"""The part of a trace around some steps."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.synthetic import Made

from perfc.ir import PerfcError
from perfc.tools.replay.replay import replay_alone
from perfc.tools.replay.trace_files import read_recorded
from perfc.traces.events import TraceError
from perfc.traces.kineto import read_trace
from perfc.traces.recording import record
from perfc.traces.step_window import (
    MarkedStep,
    Window,
    marked_steps,
    step_events,
    window_of,
)

LENGTH_US = 100.0


def _made(count: int = 5, late_us: float = 0.0) -> Made:
    """Make steps of one launch each; device work runs so much later."""
    made = Made()
    for number in range(count):
        at_us = number * LENGTH_US
        made.add("user_annotation", f"ProfilerStep#{number}", at_us, LENGTH_US - 1)
        made.add("gpu_user_annotation", f"ProfilerStep#{number}", at_us, 5.0)
        made.op("aten::mm", at_us + 10, 30)
        correlation = made.call("cudaLaunchKernel", at_us + 20, 5)
        made.work(correlation, at_us + 30 + late_us, 20)
    return made


def test_steps_are_found_in_the_text(tmp_path: Path) -> None:
    """Those of the host, in order; the device's marks are no steps."""
    path = _made(3).write(tmp_path / "t.json.gz")

    assert [
        MarkedStep(0, 0.0, 99.0),
        MarkedStep(1, 100.0, 199.0),
        MarkedStep(2, 200.0, 299.0),
    ] == marked_steps(path)


@given(st.integers(1, 400))
def test_text_may_be_cut_anywhere(size: int) -> None:
    """Where the text is cut into pieces changes nothing."""
    text = json.dumps({"traceEvents": _made(3).events}, indent=1)
    chunks = (text[at : at + size] for at in range(0, len(text), size))

    found = [event["ts"] for event in step_events(chunks)]

    assert [0.0, 0.0, 100.0, 100.0, 200.0, 200.0] == found


def test_arguments_may_stand_before_the_name(tmp_path: Path) -> None:
    """The order of an event's fields is the writer's."""
    event = {
        "args": {"External id": 3, "more": {"name": "x"}},
        "name": "ProfilerStep#7",
        "ph": "X",
        "cat": "user_annotation",
        "ts": "5",
        "dur": 2,
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps([event]), encoding="utf-8")

    assert [MarkedStep(7, 5.0, 7.0)] == marked_steps(path)


@pytest.mark.parametrize(
    "event",
    [
        {"ts": 1, "dur": [2]},
        {"ts": None, "dur": 2},
        {"ts": 1, "dur": 2, "ph": "i"},
        {"ts": 1, "dur": 2, "cat": "python_function"},
    ],
)
def test_what_is_no_step(tmp_path: Path, event: dict[str, object]) -> None:
    """A mark without a time, or of another kind, is passed over."""
    whole = {"ph": "X", "cat": "cpu_op", "name": "ProfilerStep#1", **event}
    path = tmp_path / "t.json"
    path.write_text(json.dumps([whole]), encoding="utf-8")

    assert [] == marked_steps(path)


def test_a_mark_that_never_ends_is_passed_over(tmp_path: Path) -> None:
    """Damage is told by who reads the events, not by who looks for steps."""
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"name": "ProfilerStep#1", ', encoding="utf-8")

    assert [] == marked_steps(path)
    with pytest.raises(TraceError, match="not valid JSON"):
        read_trace(path)


def test_the_window_has_the_neighbours() -> None:
    """One step before, one after, as far as there are any."""
    marked = [MarkedStep(n, n * 10.0, n * 10.0 + 9) for n in range(5)]

    assert Window(10.0, 39.0) == window_of(marked, range(2, 3))
    assert Window(0.0, 19.0) == window_of(marked, range(1))
    assert Window(20.0, 49.0) == window_of(marked, range(3, 5))


def test_only_the_window_is_kept(tmp_path: Path) -> None:
    """Ops, calls and work of three of five steps, each piece of work with its call."""
    path = _made(5).write(tmp_path / "t.json")

    trace = read_trace(path, window_of(marked_steps(path), range(2, 3)))

    assert [1, 2, 3] == [step.number for step in trace.steps]
    assert 3 == len(trace.ops) == len(trace.calls) == len(trace.works)
    assert {c.correlation for c in trace.calls} == {w.correlation for w in trace.works}


def test_late_work_of_the_window_is_kept(tmp_path: Path) -> None:
    """Work that runs after the window belongs to it if its call does."""
    path = _made(5, late_us=LENGTH_US).write(tmp_path / "t.json")

    trace = read_trace(path, window_of(marked_steps(path), range(1)))

    # of two steps; the work of the first runs in the second, that of the second after
    assert [1, 2] == [work.correlation for work in trace.works]


def _random(rng: random.Random) -> Made:
    """Make steps whose kernels fall behind by up to some steps; the host may wait."""
    made, at_us = Made(), 0.0
    busy_us: dict[int, float] = {7: 0.0, 9: 0.0}
    longest_us = rng.choice([50.0, 400.0, 1800.0])
    for number in range(6):
        now_us = at_us + 10
        for _ in range(rng.randint(1, 6)):
            made.op("aten::mm", now_us, 30)
            correlation = made.call("cudaLaunchKernel", now_us + 3, 5)
            stream, long_us = rng.choice([7, 9]), rng.uniform(5, longest_us)
            start_us = max(now_us + 13, busy_us[stream] + 1)
            made.work(correlation, start_us, long_us, stream=stream)
            busy_us[stream] = start_us + long_us
            now_us += rng.uniform(35, 80)
        if rng.random() < 0.4:
            end_us = max(now_us, *busy_us.values()) + 2
            made.call("cudaDeviceSynchronize", now_us, end_us - now_us)
            now_us = end_us
        long_us = max(1000.0, now_us + 5 - at_us)
        name = f"ProfilerStep#{number}"
        made.add("user_annotation", name, at_us, long_us - 1)
        at_us += long_us
    return made


@given(st.integers(0, 10**6), st.integers(0, 5))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_window_replays_as_the_whole(tmp_path: Path, seed: int, number: int) -> None:
    """However far the device is behind, a step takes what it takes in the whole."""
    path = _random(random.Random(seed)).write(tmp_path / "t.json")
    asked = range(number, number + 1)
    (part,) = read_recorded([path], steps=asked)

    (found,) = replay_alone([part], steps=asked)
    (whole,) = replay_alone([record(read_trace(path))], steps=asked)

    assert pytest.approx(whole.measured_us) == found.measured_us
    assert pytest.approx(whole.simulated_us) == found.simulated_us


def test_a_step_without_launches_is_refused(tmp_path: Path) -> None:
    """A step in which nothing was launched has nothing to replay."""
    made = _made(2)
    made.add("user_annotation", "ProfilerStep#2", 2 * LENGTH_US, 9.0)
    (part,) = read_recorded([made.write(tmp_path / "t.json")], steps=range(2, 3))

    with pytest.raises(PerfcError, match="nothing was launched in the steps that are"):
        replay_alone([part], steps=range(2, 3))


def test_equal_names_and_arguments_are_kept_once(tmp_path: Path) -> None:
    """A million equal ops take the memory of their times."""
    trace = read_trace(_made(3).write(tmp_path / "t.json"))
    first, second, _ = trace.ops

    assert first.name is second.name
    assert first.thread is second.thread
    assert first.inputs is second.inputs
    assert trace.works[0].name is trace.works[1].name
    assert trace.works[0].stream is trace.works[1].stream


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    """Parts of the file that are read grow up to the whole."""
    path = _made(3).write(tmp_path / "t.json")
    parts: list[float] = []

    read_trace(path, progress=parts.append)
    marked_steps(path, parts.append)

    assert [1.0, 1.0] == parts
