"""What cannot be of slow links and of edge boards, as it is typed: one line each."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command

_NODES = """
[[nodes]]
name = "a"
target = "t4"
[[nodes]]
name = "b"
target = "t4"
"""
_LINK = '[[links]]\na = "a"\nb = "b"\nmbit_per_s = {}\n'


@pytest.fixture(name="command")
def _command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (_NODES, "network is disconnected: no way leads from 'a' to 'b'"),
        ('[[nodes]]\nname = "a"\n', "node 'a' has no target"),
        (_NODES + _LINK.format(0), "mbit_per_s 0, expected more than 0"),
        (
            _NODES + _LINK.format(8) + _LINK.format(80),
            "link 'a' to 'b' is named twice, with different rates",
        ),
    ],
)
def test_networks(tmp_path: Path, command: Command, text: str, problem: str) -> None:
    """The line names the file, and nothing is written."""
    path, out = tmp_path / "lab.toml", tmp_path / "found.json"
    path.write_text(text, encoding="utf-8")
    words = ("--batch", "4", "--format", "json", "-o", str(out), "-q")

    outcome = command("parallel", "gpt2", "--network", str(path), *words)

    assert (1, "") == (outcome.code, outcome.out)
    assert problem in outcome.error
    assert "lab.toml" in outcome.error
    assert "\n" not in outcome.error
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--prune", "1"), "expected a share of 0 or more, below 1"),
        (("--prune", "-0.1"), "expected a share of 0 or more, below 1"),
        (("--set", "power.mode=5w"), "5w: no power mode of jetson-tx2; it has max-n"),
    ],
)
def test_boards(command: Command, words: tuple[str, ...], problem: str) -> None:
    """The line says what there is."""
    always = ("--batch", "4", "--mode", "training", "--target", "jetson-tx2")

    outcome = command("analyze", "resnet18", *always, *words)

    assert outcome.code in (1, 2)
    assert "" == outcome.out
    assert problem in outcome.error
    assert "\n" not in outcome.error
