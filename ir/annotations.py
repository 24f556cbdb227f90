"""Typed facts that passes attach to a program, kept beside it, not inside it.

A key is a module constant owned by the pass that provides it. Storing facts per
key makes the type checker see the value type and makes a whole analysis cheap
to drop. Facts that depend on the machine are kept per `Scenario` (target,
runtime, bound dimensions), so that one graph carries the results of several
targets side by side; facts true everywhere are kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, cast

import attrs

from perfc.ir.core import Graph, Node, Value
from perfc.ir.launch import LaunchGraph
from perfc.ir.program import Program

T = TypeVar("T")
Anchor: TypeAlias = Node | Value | Graph | LaunchGraph | Program


@attrs.frozen(eq=False)
class AnnotationKey(Generic[T]):
    """The name and the anchor of one kind of fact; `T` is the facts' type.

    Attributes:
        name: As printed, `cost.kernels`.
        anchor: The class of the things annotated.
        per_scenario: Whether the fact depends on target, runtime or binding.

    """

    name: str
    anchor: type[Node | Value | Graph | LaunchGraph | Program]
    per_scenario: bool = True

    def __str__(self) -> str:
        return self.name


AnyKey: TypeAlias = AnnotationKey[Any]


@attrs.frozen
class Scenario:
    """What machine-dependent facts depend on, apart from the graph itself.

    Attributes:
        target: Name of the target.
        spec_sha256: Digest of its sheet, overrides included.
        runtime: `eager`, …
        bindings: Symbol and number, sorted.
        options: Text of the pipeline that ran.

    """

    target: str
    spec_sha256: str
    runtime: str
    bindings: tuple[tuple[str, int], ...] = ()
    options: str = ""


@attrs.define
class Annotations:
    """All facts known about one program."""

    _tables: dict[tuple[AnyKey, Scenario | None], dict[Anchor, Any]] = attrs.field(
        factory=dict["tuple[AnyKey, Scenario | None]", "dict[Anchor, Any]"], init=False
    )

    def keys(self, scenario: Scenario | None) -> Iterator[AnyKey]:
        """Keys known for *scenario*, those true everywhere included."""
        return (key for key, s in self._tables if s is None or s == scenario)

    def set(
        self, key: AnnotationKey[T], anchor: Anchor, fact: T, scenario: Scenario | None
    ) -> None:
        """Attach *fact* to *anchor*."""
        if not isinstance(anchor, key.anchor):
            msg = f"{key} annotates {key.anchor.__name__}, not {type(anchor).__name__}"
            raise TypeError(msg)
        self._tables.setdefault(_slot(key, scenario), {})[anchor] = fact

    def get(
        self, key: AnnotationKey[T], anchor: Anchor, scenario: Scenario | None
    ) -> T:
        """Return the fact, or raise `KeyError`: absence is never a default."""
        return cast("T", self._tables[_slot(key, scenario)][anchor])

    def table(
        self, key: AnnotationKey[T], scenario: Scenario | None
    ) -> Mapping[Anchor, T]:
        """Return every fact under *key*, read-only."""
        return MappingProxyType(self._tables.get(_slot(key, scenario), {}))

    def fork(self) -> Annotations:
        """Return a copy to add to: facts set there do not show here."""
        copy = Annotations()
        copy._tables = {slot: dict(table) for slot, table in self._tables.items()}
        return copy

    def retain(self, stays: Callable[[AnyKey, Scenario | None], bool]) -> None:
        """Forget every fact whose key and scenario *stays* refuses."""
        for slot in [slot for slot in self._tables if not stays(*slot)]:
            del self._tables[slot]


def _slot(key: AnyKey, scenario: Scenario | None) -> tuple[AnyKey, Scenario | None]:
    return (key, scenario if key.per_scenario else None)
