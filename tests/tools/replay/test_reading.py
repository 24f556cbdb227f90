"""What a terminal is told while a large file is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfc.tools.replay.reading import reading


def test_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error that is no terminal is told nothing."""
    with reading(Path("t.json")) as progress:
        assert progress is None

    assert "" == capsys.readouterr().err


def test_what_takes_long_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal sees how far it is, on one line that is gone in the end."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    times_s = iter([0.0, 1.0, 3.0, 3.1, 4.0])
    monkeypatch.setattr("time.monotonic", lambda: next(times_s))

    with reading(Path("folder/t.json")) as progress:
        assert progress is not None
        for part in (0.1, 0.25, 0.3, 0.5):
            progress(part)

    said = capsys.readouterr().err
    assert ["perfc: reading t.json: 25%", "perfc: reading t.json: 50%"] == [
        text.removesuffix("\x1b[K") for text in said.split("\r") if "%" in text
    ]
    assert said.endswith("\r\x1b[K")
