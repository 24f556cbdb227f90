"""Result files are whole, or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from perfc.ir import PerfcError
from perfc.ir.support import write_file


def test_write(tmp_path: Path) -> None:
    """The file holds the text, readable as the user's other files are."""
    path, other = tmp_path / "r", tmp_path / "other"
    other.touch()

    write_file(path, "µs\n")

    assert "µs\n" == path.read_text(encoding="utf-8")
    assert stat.S_IMODE(other.stat().st_mode) == stat.S_IMODE(path.stat().st_mode)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong on the way (a full disk) leaves nothing new, and no rest."""
    path = tmp_path / "r"
    path.write_text("old")

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(
        PerfcError, match=r"cannot write .*/r: No space left on device$"
    ):
        write_file(path, "new")

    assert "old" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_a_link_is_followed(tmp_path: Path) -> None:
    """Writing to a link writes what it leads to."""
    path, link = tmp_path / "r", tmp_path / "link"
    link.symlink_to(path)

    write_file(link, "text")

    assert link.is_symlink()
    assert "text" == path.read_text()


def test_a_device_stays_one() -> None:
    """`-o /dev/null` does not put a file in its place."""
    write_file(Path(os.devnull), "text")

    assert Path(os.devnull).is_char_device()


def test_a_folder(tmp_path: Path) -> None:
    """A folder is no file."""
    with pytest.raises(PerfcError, match=r"cannot write .*: Is a directory$"):
        write_file(tmp_path, "text")
