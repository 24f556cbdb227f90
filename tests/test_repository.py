"""Rules for the files of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES = 500
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/tutorial.md")
MACHINE_PATH = re.compile(rb"(?<![\w.~-])/(?:work|tmp|root|home)/")
MAKE = re.compile(r"\bmake ([a-z]+)(?=`|\s*(?:#.*)?$)", re.MULTILINE)
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


@cache
def _tracked() -> list[Path]:
    """Files that git holds or would add."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(  # noqa: S603 - our own arguments
        command, cwd=ROOT, check=False, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip(f"git refuses: {listed.stderr.strip()}")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def test_no_machine_paths() -> None:
    """No file names a folder of the machine it was written on."""
    named = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _tracked()
        for number, line in enumerate(path.read_bytes().splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]

    assert [] == named


def test_files_are_short() -> None:
    """A longer file holds two nouns: split it."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_bytes().splitlines())
        for path in _tracked()
        if path.suffix == ".py"
    }

    assert {} == {name: n for name, n in lengths.items() if n > MAX_LINES}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_exist(document: str) -> None:
    """Every `make x` of a document is a target of the Makefile."""
    named = set(MAKE.findall((ROOT / document).read_text()))

    assert set() == named - set(TARGET.findall((ROOT / "Makefile").read_text()))
