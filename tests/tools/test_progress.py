"""Whoever waits is told how far it is, and nothing of that stays."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.tools.command import SMALL, Command
from tests.tools.terminal import run_at_terminal

from perfc.tools.progress import Progress, clock

_SWEEP = ("sweep", "dlrm-ddp:tables=1,rows=1000", "--target", "a100", "--executor")


def _at(
    times_s: Iterable[float], monkeypatch: pytest.MonkeyPatch, *, live: bool
) -> None:
    """Let it be at a terminal or not, and look at the clock at these times."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: live)
    monkeypatch.setenv("TERM", "xterm")
    after = iter(times_s)
    monkeypatch.setattr("time.monotonic", lambda: next(after))


def _shown(text: str) -> list[str]:
    return [part.removesuffix("\x1b[K") for part in text.split("\r") if part]


def test_counts_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two seconds: how many, how fast, and how long still; then it is gone."""
    _at([0, 0, 1, 3, 3, 3.05, 5, 5, 10], monkeypatch, live=True)
    progress = Progress()
    for done in (0, 10, 30, 31, 50, 100):
        progress.count("rows", done, 100, "2 bad" if done == 50 else "")

    assert [
        "perfc: 30 of 100 rows; 10 a second, 0:07 left",
        "perfc: 50 of 100 rows, 2 bad; 10 a second, 0:05 left",
        "",
    ] == _shown(capsys.readouterr().err)


def test_counts_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every five seconds a line, of verbs that take long."""
    _at([0, 0, 4, 8, 8, 9, 16, 16, 16], monkeypatch, live=False)
    progress = Progress()
    progress.logged = True
    for done in (0, 1, 2, 3, 4):
        progress.count("plans", done, 5)
    progress.total(4, 5)

    assert [
        "perfc: 2 of 5 plans; 4 s each, 0:12 left",
        "perfc: 4 of 5 plans; 4 s each, 0:04 left",
        "perfc: 4 of 5 plans; 4 s each, 0:16 in all",
    ] == capsys.readouterr().err.splitlines()


def test_what_goes_on_from_an_earlier_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done before counts for no rate."""
    _at([0, 0, 10, 10], monkeypatch, live=False)
    progress = Progress()
    progress.logged = True
    progress.count("rows", 500, 1000)
    progress.count("rows", 525, 1000)

    assert (
        "perfc: 525 of 1,000 rows; 2.5 a second, 3:10 left\n"
    ) == capsys.readouterr().err


def test_shares(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one thing it is told which part is done."""
    _at([0, 0, 1, 4, 4, 4.05], monkeypatch, live=True)
    progress = Progress()
    for part in (0.0, 0.1, 0.4, 0.41):
        progress.share("reading t.json", part)

    assert ["perfc: reading t.json: 40%, 0:06 left"] == _shown(capsys.readouterr().err)


def test_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal sees which one it is, and for how long; a log is told each once."""
    _at([0, 0, 0.5, 8, 8], monkeypatch, live=True)
    progress = Progress()
    progress.step("searching")
    progress.tick()
    progress.tick()
    _at(itertools.count(), monkeypatch, live=False)
    log = Progress()
    log.step("searching")
    log.tick()

    assert (
        "\rperfc: searching\x1b[K\rperfc: searching, 0:08\x1b[K\r\x1b[K"
        "perfc: searching\n"
    ) == capsys.readouterr().err


def test_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for nothing is told nothing."""
    for live in (True, False):
        _at(itertools.count(0, 100), monkeypatch, live=live)
        progress = Progress(quiet=True)
        progress.logged = True
        progress.count("rows", 1, 3)
        progress.count("rows", 2, 3)
        progress.share("reading", 0.5)
        progress.step("searching")
        progress.tick()
        progress.line("found")
        progress.total(2, 3)

    assert "" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0:00"), (65.4, "1:05"), (3599.6, "1:00:00"), (7265, "2:01:05")],
)
def test_clock(seconds: float, expected: str) -> None:
    """Times are as on a clock."""
    assert expected == clock(seconds)


def test_a_sweep_at_a_terminal(tmp_path: Path) -> None:
    """What stands there in the end is the line with the sum."""
    asked = (*_SWEEP, "local:1", "--vary", "batch=64:4096:16", "-o", "rows.csv")
    seen = run_at_terminal(*asked[:-1], str(tmp_path / "rows.csv"))
    *told, last = seen.lines

    assert (0, "") == (seen.code, last)
    assert 1 == len(told)
    assert told[0].startswith("perfc: 253 of 253 configurations; ")
    assert told[0].endswith(" in all")


def test_an_interrupted_sweep_at_a_terminal(tmp_path: Path) -> None:
    """Ctrl-C leaves whole lines: how far it came, and that it was interrupted."""
    asked = (*_SWEEP, "local:1", "--vary", "batch=1:100000:1", "-o")
    seen = run_at_terminal(*asked, str(tmp_path / "rows.csv"), interrupt=" left")
    *told, last = seen.lines

    assert (130, "") == (seen.code, last)
    assert told[0].startswith("perfc: ")
    assert told[0].endswith(" in all")
    assert "perfc: error: interrupted" == told[-1]


def test_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is no longer than there is room for, so that it can be written over."""
    said: list[str] = []
    monkeypatch.setattr("sys.stderr.write", said.append)
    monkeypatch.setattr("sys.stderr.fileno", lambda: 2)

    def size(number: int) -> os.terminal_size:
        return os.terminal_size((20, 5))

    monkeypatch.setattr(os, "get_terminal_size", size)
    _at(itertools.count(0, 10), monkeypatch, live=True)
    progress = Progress()
    progress.step("a step whose name is long")

    assert ["\rperfc: a step whose\x1b[K"] == said
    progress.line("end")


def test_verbs_count_what_they_do(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At a terminal budgets of a check are counted, but for `-q`; in a log never."""
    monkeypatch.setattr("perfc.tools.progress._SILENT_S", -1)
    monkeypatch.setattr("perfc.tools.progress._SOON_S", -1)
    budget = '[[budget]]\nname = "{}"\nmodel = "{}"\nbatch = 8\ntarget = "{}"\n'
    path = tmp_path / "budgets.toml"
    texts = [budget.format(t, SMALL[0], t) + "time_us = 1e9\n" for t in ("t4", "v100")]
    path.write_text("".join(texts), "utf-8")
    logged = command("check", str(path))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown, quiet = command("check", str(path)), command("check", str(path), "-q")

    assert (0, 0, 0) == (logged.code, shown.code, quiet.code)
    assert "\rperfc: 1 of 2 budgets; " in shown.err
    assert shown.err.endswith("\r\x1b[K")
    assert ("", "") == (logged.err, quiet.err)
