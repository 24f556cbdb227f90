"""What is installed: entry points and versions of distributions.

As `importlib.metadata` finds them, whose import takes longer than reading all that
perfc asks for. Where distributions lie in other than folders of `sys.path` (in zip
files and eggs, or with finders of their own), it is asked.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from operator import attrgetter
from typing import NamedTuple

_METADATA = (".dist-info", ".egg-info")
_VALUE = re.compile(r"([\w.]+)\s*(?::\s*([\w.]+)\s*)?(?:\[.*\]\s*)?")
"""`module:attribute [extras]`, as entry points are written."""


class EntryPoint(NamedTuple):
    """An object that a distribution offers.

    Attributes:
        name: What it is called in its group.
        value: `module:attribute`.
        group: What it is offered as.
        owner: The distribution, if that is known.

    """

    name: str
    value: str
    group: str
    owner: str = ""

    def load(self) -> object:
        """Import the module and return the attribute, or the module.

        Raises:
            ValueError: the value names none.
            Exception: what the import raises.

        """
        match = _VALUE.fullmatch(self.value)
        if match is None:
            message = f"{self.value!r} is no module:attribute"
            raise ValueError(message)
        module = import_module(match[1])
        return attrgetter(match[2])(module) if match[2] else module


def entry_points(*, group: str) -> list[EntryPoint]:
    """Return the entry points of *group*, of all distributions."""
    if not _is_plain():
        from importlib import metadata  # noqa: PLC0415 - slow

        return [
            EntryPoint(p.name, p.value, p.group, p.dist.name if p.dist else "")
            for p in metadata.entry_points(group=group)
        ]
    return [point for point in _found(tuple(sys.path)) if point.group == group]


def version(name: str) -> str | None:
    """Return the version of a distribution; None if it is not installed."""
    if not _is_plain():
        from importlib import metadata  # noqa: PLC0415 - slow

        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None
    folder = _distributions(sys.path).get(_normalized(name))
    found = "" if folder is None else _read(folder, "METADATA", "PKG-INFO")
    match = re.search(r"^Version: *(\S+)", found, re.MULTILINE)
    return None if match is None else match[1]


@functools.cache
def _found(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(
        point
        for folder in _distributions(path).values()
        for point in _points_of(folder, _read(folder, "entry_points.txt"))
    )


def _is_plain() -> bool:
    """Whether all distributions lie in folders of the path."""
    finders = (f for f in sys.meta_path if hasattr(f, "find_distributions"))
    return all(finder is PathFinder for finder in finders) and not any(
        entry.endswith(".egg") or os.path.isfile(entry)  # noqa: PTH113 - quick
        for entry in sys.path
    )


def _distributions(path: Iterable[str]) -> Mapping[str, str]:
    """Return folders of metadata by distribution: the first on the path of each."""
    found: dict[str, str] = {}
    for entry in path:
        try:
            names = os.listdir(entry or ".")  # noqa: PTH208 - quick
        except OSError:
            continue  # much of a path does not exist
        for suffix in _METADATA:
            for name in names:
                if name.endswith(suffix):
                    called = _normalized(_distribution(name))
                    found.setdefault(called, f"{entry or '.'}/{name}")
    return found


def _distribution(folder: str) -> str:
    """Return whose metadata `NAME-VERSION.dist-info` or `NAME.egg-info` holds."""
    return os.path.splitext(folder)[0].partition("-")[0]  # noqa: PTH122 - quick


def _normalized(name: str) -> str:
    """Return the name by which distributions are the same (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(folder: str, *names: str) -> str:
    """Return the first of these files that is there; empty if none is."""
    for name in names:
        try:
            with open(f"{folder}/{name}", encoding="utf-8") as file:  # noqa: PTH123
                return file.read()
        except OSError:
            continue
    return ""


def _points_of(folder: str, text: str) -> Iterator[EntryPoint]:
    """Yield the entry points in the sections of an `entry_points.txt`."""
    owner = _distribution(os.path.basename(folder))  # noqa: PTH119 - quick
    group = ""
    for line in map(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif equals and group and not line.startswith("#"):
            yield EntryPoint(name.strip(), value.strip(), group, owner)
