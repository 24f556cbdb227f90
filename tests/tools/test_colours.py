"""Text on a terminal is coloured, and the same text."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.command import Command
from tests.tools.terminal import run_at_terminal

from perfc.tools.colours import coloured
from perfc.tools.files import has_colours

_SMALL = ("analyze", "dlrm-ddp:tables=1,rows=1000", "--batch", "8", "--target", "a100")
_ESCAPE = re.compile(r"\x1b\[[0-9;]+m")
_RED, _GREEN, _BOLD, _YELLOW, _CYAN = (f"\x1b[{n}m" for n in (31, 32, 1, 33, 36))
_END = "\x1b[0m"


_PLANS = "\nplan  step  to base\na     5 ms  +7.1 %\nb     3 ms  -2.5 %\n"
_COLOURED = f"""
{_BOLD}plan  step  to base{_END}
a     5 ms  {_RED}+7.1 %{_END}
b     3 ms  {_GREEN}-2.5 %{_END}
"""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "terminal", "pipe"),
    [
        ({}, True, False),
        ({"TERM": "xterm-256color"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": "0"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"FORCE_COLOR": "", "CLICOLOR_FORCE": "0"}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_where_colours_are(
    environment: dict[str, str],
    terminal: bool,
    pipe: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a terminal, unless the environment says otherwise."""
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert (terminal, pipe) == (has_colours(_Terminal()), has_colours(io.StringIO()))
    assert not has_colours(None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Top ops\n  op  where\n", f"{_BOLD}Top ops{_END}\n  op  where\n"),
        (_PLANS, _COLOURED),
        ("1 ms: +0.00 us (+0.0 %)", "1 ms: +0.00 us (+0.0 %)"),
        (
            "1 ms: +2.50 us (-3 KiB)",
            f"1 ms: {_RED}+2.50 us{_END} ({_GREEN}-3 KiB{_END})",
        ),
        ("Bottleneck: the host", f"\x1b[1;33mBottleneck{_END}: the host"),
        ("Warning: large", f"{_YELLOW}Warning{_END}: large"),
        ("note: small", f"{_CYAN}note{_END}: small"),
        ("perfc: error: no", f"\x1b[1;31mperfc: error{_END}: no"),
        ("s  time  1  BROKEN", f"s  time  1  {_RED}BROKEN{_END}"),
        (
            "gpu.vendor  NVIDIA\ngpu.sm_count  108",
            "gpu.vendor  NVIDIA\ngpu.sm_count  108",
        ),
        ("a sentence.\nanother one.", "a sentence.\nanother one."),
        ("x-3 ms and 10-20 us", "x-3 ms and 10-20 us"),
    ],
)
def test_what_is_coloured(text: str, expected: str) -> None:
    """Headings, heads of tables, remarks, verdicts, differences; nothing else."""
    assert expected == coloured(text)


_WORDS = st.sampled_from(
    [
        "plan",
        "  ",
        " ",
        "\n",
        "+7.1 %",
        "-2 us",
        "Note: ",
        "BROKEN",
        "error: ",
        "é",
        "1",
    ]
)


@given(st.one_of(st.text(), st.lists(_WORDS).map("".join)))
def test_text_stays(text: str) -> None:
    """Without the escapes it is what it was, so that columns stay where they were."""
    plain = _ESCAPE.sub("", text)

    assert plain == _ESCAPE.sub("", coloured(plain))


def test_at_a_terminal() -> None:
    """A report has colours there, and the words of one in a pipe."""
    seen = run_at_terminal(*_SMALL)
    piped = _piped(*_SMALL)

    assert (0, 0) == (seen.code, piped.returncode)
    assert f"{_BOLD}Where the time goes (critical path){_END}" in seen.text
    assert f"\x1b[1;33mBottleneck{_END}: " in seen.text
    assert "\x1b" not in piped.stdout + piped.stderr
    assert piped.stdout == seen.plain.replace("\r\n", "\n")


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_at_a_terminal_without(environment: dict[str, str]) -> None:
    """What the environment says holds for errors, too."""
    seen = run_at_terminal("analyze", "x.pt", "--target", "t4", environment=environment)

    assert 2 == seen.code
    assert seen.text.startswith("perfc: error: x.pt: ")
    assert "\x1b" not in seen.text


def test_errors_at_a_terminal() -> None:
    """An error is told from what a program prints."""
    seen = run_at_terminal("analyze", "x.pt", "--target", "t4")

    assert seen.text.startswith(f"\x1b[1;31mperfc: error{_END}: x.pt: ")


@pytest.mark.parametrize("form", ["json", "csv", "md"])
def test_documents_have_none(
    command: Command, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where colours are forced."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    outcome = command(*_SMALL, "--format", form)

    assert (0, False) == (outcome.code, "\x1b" in outcome.out)


@pytest.mark.parametrize(
    "verb",
    [
        ("ops", "--format", "json"),
        ("ops", "--kernels", "--format", "json"),
        ("targets", "show", "a100", "--format", "json"),
        ("targets", "show", "a100", "--constants", "--format", "json"),
        ("sweep", *_SMALL[1:], "--vary", "dtype=fp32,bf16", "-q", "--format", "json"),
        ("quantize", *_SMALL[1:], "--linear", "int8", "--format", "json"),
    ],
)
def test_json_of_verbs_has_none(
    command: Command, verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is JSON on whatever it is written to."""
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert json.loads(command(*verb).out)


def test_files_have_none(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `-o` writes is text for whatever reads it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    path = tmp_path / "report.txt"

    assert 0 == command(*_SMALL, "-o", str(path)).code
    assert "\x1b" not in path.read_text("utf-8")
    assert "\x1b" in command(*_SMALL).out


def _piped(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfc", *arguments],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
