"""Where modules, and names of doors, are that have moved: for those who still ask."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

_TABLE = Path(__file__).with_name("moved.txt")
"""A line each: `perfc.package.module new`, or `perfc.package:name new`."""

_NAME = re.compile(r"cannot import name '(\w+)'")


def moved_to(error: Exception) -> str:
    """Return what to import instead of what is gone; nothing if that is unknown.

    Args:
        error: Of an import of a module that is gone, or of a name that a door of
            perfc's no longer has.

    """
    if not isinstance(error, ImportError) or error.name is None:
        return ""
    name = _NAME.match(error.msg)
    asked = f"{error.name}:{name[1]}" if name else error.name
    new = _moved().get(asked)
    return f"; {asked.replace(':', '.')} is in {new} now" if new else ""


@functools.cache
def _moved() -> Mapping[str, str]:
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines)
