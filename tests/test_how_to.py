"""The commands of the how-tos run as they are written."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOW_TOS = sorted((ROOT / "docs" / "how-to").glob("*.md"))
BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 120


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a folder that looks like the root after `make demo`."""
    for name in ("costmodels", "docs", "examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(sysconfig.get_path("scripts"))
    return tmp_path


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own documents
        ["/bin/sh", "-e", "-c", command],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("document", HOW_TOS, ids=lambda path: path.stem)
def test_every_command_runs_and_prints_what_is_shown(
    document: Path, checkout: Path
) -> None:
    """Blocks marked `sh` exit with 0; `console` ones show one command's output."""
    blocks = BLOCK.findall(document.read_text(encoding="utf-8"))
    assert blocks
    for kind, text in blocks:
        command, _, shown = (
            text.partition("\n") if kind == "console" else (text, "", "")
        )
        result = _run(command.removeprefix("$ "), checkout)
        if kind == "console":
            assert shown == result.stdout + result.stderr
        else:
            assert (0, "") == (result.returncode, result.stderr)
