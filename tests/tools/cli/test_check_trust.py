"""Budgets that others wrote: what they may run, and what they may write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import WORKLOAD, Command

HEAD = f"[[budget]]\nmodel = '{WORKLOAD}'\ntarget = 'v100'\nbatch = 64\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where budgets are written."""
    return tmp_path / "budgets.toml"


RAN = "ran.txt"
MODEL = f"""
from pathlib import Path
import torch
Path(__file__).with_name("{RAN}").touch()
def build():
    return torch.nn.Linear(8, 8), (torch.zeros(4, 8),)
"""


@pytest.fixture
def made(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that is there once the model of the budgets was imported."""
    monkeypatch.chdir(file.parent)
    (file.parent / "mine.py").write_text(MODEL, encoding="utf-8")
    return file.parent / RAN


@pytest.mark.parametrize(
    "model", ["mine.py:build", "mine:build", "./mine.py:build", "../{}/mine.py:build"]
)
@pytest.mark.parametrize("fine", ["", HEAD + "time_us = 1e9\n"])
def test_python_is_refused(
    model: str, fine: str, file: Path, made: Path, command: Command
) -> None:
    """However a function is named, beside whatever else, and nothing is imported."""
    named = model.format(file.parent.name)
    text = f"[[budget]]\nmodel = '{named}'\ntarget = 'v100'\ntime_us = 1e9\n"
    file.write_text(fine + text, encoding="utf-8")
    error = command.refused(["check", str(file), "--update"], 1)

    assert error.startswith(f"{file}: budget[{int(bool(fine))}].model: expected a file")
    assert f"{named!r}, which is Python that runs: allow it by --allow-python" in error
    assert not made.exists()


@pytest.mark.parametrize("by", ["option", "config"])
def test_python_is_allowed(
    by: str, file: Path, made: Path, command: Command, tmp_path_factory: Any
) -> None:
    """By whoever types the command, or by a file of another checkout."""
    pytest.importorskip("torch")
    text = "[[budget]]\nmodel = 'mine.py:build'\ntarget = 'v100'\ntime_us = 1e9\n"
    file.write_text(text, encoding="utf-8")
    config = tmp_path_factory.mktemp("base") / "perfc.toml"
    config.write_text("allow-python = true", encoding="utf-8")
    words = ["--allow-python"] if by == "option" else ["--config", str(config)]
    outcome = command("check", str(file), *words, "--format", "json")

    assert 0 == outcome.code
    assert ["mine.py:build@v100"] == [one["name"] for one in outcome.report["budgets"]]
    assert made.exists()


@pytest.mark.parametrize(
    ("place", "text", "message"),
    [
        ("base", "allow-python = false", "budget[0].model: expected a file or a built"),
        ("base", "", "budget[0].model: expected a file or a built-in workload"),
        ("base", "allow-python = 1", "allow-python: expected true or false, found 1"),
        ("base", "allow_python = true", "allow_python: expected no key but allow-pyt"),
        ("base", "allow-python", "not valid TOML"),
        ("head", "allow-python = true", "lies in the same checkout as "),
        ("head/ci", "allow-python = true", "lies in the same checkout as "),
        ("head/link", "allow-python = true", "lies in the same checkout as "),
        ("none", "", "cannot read "),
    ],
)
def test_who_may_allow_python(
    place: str, text: str, message: str, tmp_path: Path, command: Command
) -> None:
    """Not the checkout that is judged, wherever in it, and no file that says less."""
    for name in ("head/.git", "head/ci", "base/.git"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "head/link").symlink_to("ci")
    config = tmp_path / place / "perfc.toml"
    if place != "none":
        config.write_text(text, encoding="utf-8")
    budgets = tmp_path / "head/budgets.toml"
    head = "[[budget]]\nmodel = 'mine.py:build'\ntarget = 'v100'\ntime_us = 1e9\n"
    budgets.write_text(head, encoding="utf-8")

    error = command.refused(["check", str(budgets), "--config", str(config)], 1)
    assert message in error


@pytest.mark.parametrize("how", ["dots", "link", "absolute"])
def test_an_update_writes_nothing_elsewhere(
    how: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Budgets of others name no file outside of their folder and the current one."""
    (tmp_path / "head").mkdir()
    monkeypatch.chdir(tmp_path / "head")
    mine = tmp_path / "mine.txt"
    mine.write_text("mine", encoding="utf-8")
    (tmp_path / "head/link.json").symlink_to(mine)
    base = {"dots": "../mine.txt", "link": "link.json", "absolute": str(mine)}[how]
    file = tmp_path / "head/budgets.toml"
    text = f"{HEAD}regression = '5 %'\nbaseline = '{base}'\n"
    file.write_text(text, encoding="utf-8")

    error = command.refused(["check", "budgets.toml", "--update"], 1)
    assert f"budget[0].baseline: expected a file in {tmp_path / 'head'}" in error
    assert "mine" == mine.read_text(encoding="utf-8")
