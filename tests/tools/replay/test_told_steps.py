"""Steps that the profiler did not mark, as a user asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command
from tests.traces.synthetic import LAUNCHED, loop


def test_steps_that_are_told_can_be_asked_for(command: Command, tmp_path: Path) -> None:
    """`--steps` takes their numbers."""
    path = str(loop(*([LAUNCHED] * 5), copy=True).write(tmp_path / "t.json"))

    done = command("replay", path, "--steps", "1:2", "--format", "json")

    (trace,) = done.report["traces"]
    assert ["step#1", "step#2"] == [step["name"] for step in trace["steps"]]
    assert trace["error"] == pytest.approx(0, abs=0.01)


def test_steps_that_cannot_be_told(command: Command, tmp_path: Path) -> None:
    """One line says that none can be asked for; without steps it is replayed whole."""
    path = str(loop(LAUNCHED, LAUNCHED, copy=True).write(tmp_path / "t.json"))

    done = command("replay", path, "--steps", "1:2")
    whole = command("replay", path)

    assert 1 == done.code
    assert "no steps 1 to 2; none can be told" in done.error
    assert 0 == whole.code
    assert 1 == whole.out.count("its steps cannot be told")
