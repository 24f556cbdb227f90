"""Inputs that once ended otherwise than in a result or one clear line."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.fuzz import trial
from tests.fuzz.generate import FILE, Input

FOLDER = Path(__file__).with_name("mended")
COMMANDS = FOLDER / "commands.txt"
"""A line for each file: its name, and the command that reads it."""

_LINES = [
    line.split(" ", 1)
    for line in COMMANDS.read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(("name", "command"), _LINES)
def test_what_was_mended_stays_so(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends in a result or one line, within seconds and a gigabyte."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    path = FOLDER / name
    item = Input(name, path.suffix, path.read_bytes(), tuple(shlex.split(command)))

    assert FILE in command
    assert "" == trial.run(item, tmp_path).problem


def test_every_file_is_tried() -> None:
    """No file of the folder is without a command."""
    files = {path.name for path in FOLDER.iterdir()} - {COMMANDS.name}

    assert files == {name for name, _ in _LINES}
