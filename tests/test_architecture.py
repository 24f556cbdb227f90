"""The map of rooms in docs/architecture.md is whole, and leads to what is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LAYERS = [path.name for path in (ROOT / "src" / "perfc").iterdir() if path.is_symlink()]


def test_every_room_is_on_the_map() -> None:
    """A room is a package within a layer; the map has a line for each."""
    doors = [door for name in LAYERS for door in (ROOT / name).rglob("*/__init__.py")]
    rooms = {str(door.parent.relative_to(ROOT)) for door in doors}

    assert rooms - {*LAYERS} == set(
        re.findall(r"^\| `([\w/]+/\w+)/` ", PAGE, re.MULTILINE)
    )


def test_files_that_are_named_exist() -> None:
    """The way of a node, and what else the page names, leads to files."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))

    assert len(named) > 20
    assert {name for name in named if (ROOT / name).is_file()} == named
