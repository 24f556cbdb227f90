"""Tables whose parts lie in several modules, each loaded when it is asked for.

Rules by op name lie in a module a family. A table that imports all of them makes every
command load everything; one that knows which module has which name loads the families
that a model uses. What each says of its modules is checked by
tests/test_lazy_tables.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar, cast

T_co = TypeVar("T_co", covariant=True)


class LazyTable(Mapping[str, T_co]):
    """Values by name, of which only the names are known at first."""

    __slots__ = ("_found", "_home_of", "homes", "package")

    def __init__(self, package: str, homes: Mapping[str, str]) -> None:
        """Make a table of the mappings that modules of *package* hold.

        Args:
            package: What the modules lie in.
            homes: Names, between spaces, by `module:MAPPING` within *package*.

        """
        self.package = package
        self.homes = {home: tuple(names.split()) for home, names in homes.items()}
        self._home_of = {name: home for home in homes for name in self.homes[home]}
        self._found: dict[str, T_co] = {}

    def __getitem__(self, name: str) -> T_co:
        """Return the object that *name* stands for, and load its module for that.

        Raises:
            KeyError: the table has no such name.
            AttributeError: the module has not what the table says.

        """
        if name in self._found:
            return self._found[name]
        home = self._home_of[name]
        part = self.part(home)
        if name not in part:  # no KeyError: `get` would take it for an answer
            message = f"{self.package}.{home} has no {name!r}"
            raise AttributeError(message)
        found = self._found[name] = part[name]
        return found

    def part(self, home: str) -> Mapping[str, T_co]:
        """Return the mapping of one module."""
        module, _, attribute = home.partition(":")
        part: object = getattr(import_module(f"{self.package}.{module}"), attribute)
        return cast("Mapping[str, T_co]", part)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a name; nothing is loaded for that."""
        return name in self._home_of

    def __iter__(self) -> Iterator[str]:
        """Return the names; nothing is loaded for that."""
        return iter(self._home_of)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._home_of)
