"""New places of modules, and of names of doors, for those who ask for the old ones."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

MOVED_TABLE = Path(__file__).with_name("moved.txt")
"""A line each: the old name of a module and the new one."""

_NAME = re.compile(r"cannot import name '(\w+)'")


def moved_to(error: Exception) -> str:
    """Return a hint at the new place of what is gone; nothing if that is unknown.

    Args:
        error: Of an import of a module that is gone, or of a name that a door of
            perfc's no longer has.

    """
    if not isinstance(error, ImportError) or not (error.name or "").startswith("perfc"):
        return ""
    module, name = str(error.name), _NAME.match(error.msg)
    asked = f"{module}.{name[1]}" if name else module
    new = _place_of(module, name[1]) if name else _new_module(module)
    return f"; {asked} is in {new} now" if new else ""


def _new_module(asked: str) -> str | None:
    lines = MOVED_TABLE.read_text(encoding="utf-8").splitlines()
    return dict(line.split() for line in lines).get(asked)


def _place_of(package: str, name: str) -> str | None:
    """Return the room of a package that offers a name, or the module that has it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    offered = re.compile(rf'^    "{name}",$', re.MULTILINE)
    made = re.compile(rf"^(?:class|def) {name}\b|^{name}\b[^\n]* = ", re.MULTILINE)
    for pattern, files in ((offered, "**/__init__.py"), (made, "*.py")):
        for path in sorted(folder.glob(files), key=lambda path: len(path.parts)):
            if pattern.search(path.read_text(encoding="utf-8")):
                parts = path.relative_to(folder).with_suffix("").parts
                return ".".join((package, *parts)).removesuffix(".__init__")
    return None
