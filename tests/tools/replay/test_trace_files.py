"""Traces that are larger than what their reader wants to hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command
from tests.traces.synthetic import Made

from perfc.tools.replay.trace_files import read_recorded, read_traces
from perfc.traces.events import TooManyEventsError
from perfc.traces.kineto import read_trace

A_STEP = 4
"""Events of a step: its mark, an op, a call and a kernel."""


def _made(count: int, *, marked: bool = True) -> Made:
    made = Made()
    for number in range(count):
        at_us = number * 5000.0
        if marked:
            made.add("user_annotation", f"ProfilerStep#{number}", at_us, 4999.0)
        made.op("aten::mm", at_us + 10, 30 + number)
        made.work(made.call("cudaLaunchKernel", at_us + 20, 5), at_us + 30, 20)
    return made


def test_as_many_as_are_let_in(tmp_path: Path) -> None:
    """A trace of as many events is read, one of one more is not."""
    path = _made(5).write(tmp_path / "t.json")

    (trace,) = read_traces([path], None, 5 * A_STEP)

    assert 5 * A_STEP == trace.event_count
    with pytest.raises(TooManyEventsError, match="more than 19 events to hold"):
        read_traces([path], None, 5 * A_STEP - 1)


def test_reading_stops_where_there_are_too_many(tmp_path: Path) -> None:
    """What follows is not read: not even that the file is damaged is seen."""
    path = _made(50).write(tmp_path / "t.json")
    path.write_text(path.read_text(encoding="utf-8")[:-100], encoding="utf-8")

    with pytest.raises(TooManyEventsError):
        read_trace(path, most_events=20)


def test_steps_of_a_trace_that_is_too_large(command: Command, tmp_path: Path) -> None:
    """The refusal names the steps, and some of them are read within the same limit."""
    path = str(_made(9).write(tmp_path / "t.json"))
    limit = ("--max-events", str(4 * A_STEP))

    whole = command("replay", path, *limit)
    rescaled = command("rescale", path, "--to", "a100", *limit)
    part = command("replay", path, *limit, "--steps", "4", "--format", "json")
    wide = command("replay", path, *limit, "--steps", "4:5")

    assert (1, 1, 0, 1) == (whole.code, rescaled.code, part.code, wide.code)
    assert "it has steps 0 to 8: ask for some of them, as --steps 4, or" in whole.error
    assert whole.error == rescaled.error
    assert ["ProfilerStep#4"] == [s["name"] for s in part.report["traces"][0]["steps"]]
    assert "ask for fewer --steps, or let more in with --max-events" in wide.error


def test_no_steps_are_asked_for_where_none_are_marked(tmp_path: Path) -> None:
    """What would not help is not advised."""
    path = _made(9, marked=False).write(tmp_path / "t.json")

    with pytest.raises(TooManyEventsError, match="hold; let more in with --max-events"):
        read_recorded([path], max_events=5)


def test_ranks_count_together(tmp_path: Path) -> None:
    """All traces are held at once; ranks are read whole, so steps are no way out."""
    paths = [_made(5).write(tmp_path / f"{rank}.json") for rank in range(2)]

    assert 2 == len(read_recorded(paths, joint=True, max_events=2 * 5 * A_STEP))
    with pytest.raises(
        TooManyEventsError,
        match=r"1\.json: more than 39 events to hold, with the traces before it; let",
    ):
        read_recorded(paths, joint=True, steps=range(3), max_events=39)


def test_a_host_is_learnt_from_steps_alone(command: Command, tmp_path: Path) -> None:
    """Of a large trace no more is held than the steps; the host is the same."""
    path = str(_made(9).write(tmp_path / "t.json"))
    whole, part = tmp_path / "whole.toml", tmp_path / "part.toml"
    limit = ("--max-events", str(5 * A_STEP))
    learn = ("calibrate", "--from", path, "--steps", "3:4")

    assert 0 == command(*learn, "-o", str(whole)).code
    assert 0 == command(*learn, *limit, "-o", str(part)).code
    refused = command("calibrate", "--from", path, *limit, "-o", str(part))

    assert _values(whole) == _values(part)
    assert "it has steps 0 to 8" in refused.error


def _values(profile: Path) -> list[str]:
    """Return a profile's lines without its name."""
    text = profile.read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("name")]
