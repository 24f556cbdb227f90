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
from perfc.ir.support import brief

T = TypeVar("T")
Anchor: TypeAlias = Node | Value | Graph | LaunchGraph | Program
"""What a fact may be about."""


@attrs.frozen(cache_hash=True)
class AnnotationKey(Generic[T]):
    """The name and the anchor of one kind of fact; `T` is the facts' type.

    Keys of one name are one key, so that facts are found again in another process.

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
"""A key, whatever its facts are."""


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


_Table: TypeAlias = dict[Anchor, Any]


@attrs.define
class Annotations:
    """All facts known about one program."""

    __repr__ = brief

    _everywhere: dict[AnyKey, _Table] = attrs.field(
        factory=dict[AnyKey, _Table], init=False
    )
    _scenarios: dict[tuple[AnyKey, Scenario | None], _Table] = attrs.field(
        factory=dict["tuple[AnyKey, Scenario | None]", _Table], init=False
    )

    def keys(self, scenario: Scenario | None) -> Iterator[AnyKey]:
        """Keys known for *scenario*, those true everywhere included."""
        yield from self._everywhere
        yield from (key for key, other in self._scenarios if other == scenario)

    def set(
        self, key: AnnotationKey[T], anchor: Anchor, fact: T, scenario: Scenario | None
    ) -> None:
        """Attach *fact* to *anchor*."""
        if not isinstance(anchor, key.anchor):
            msg = f"{key} annotates {key.anchor.__name__}, not {type(anchor).__name__}"
            raise TypeError(msg)
        if key.per_scenario:
            self._scenarios.setdefault((key, scenario), {})[anchor] = fact
        else:
            self._everywhere.setdefault(key, {})[anchor] = fact

    def get(
        self, key: AnnotationKey[T], anchor: Anchor, scenario: Scenario | None
    ) -> T:
        """Return the fact, or raise `KeyError`: absence is never a default."""
        if key.per_scenario:
            return cast("T", self._scenarios[key, scenario][anchor])
        return cast("T", self._everywhere[key][anchor])

    def table(
        self, key: AnnotationKey[T], scenario: Scenario | None
    ) -> Mapping[Anchor, T]:
        """Return every fact under *key*, read-only."""
        if key.per_scenario:
            return MappingProxyType(self._scenarios.get((key, scenario), {}))
        return MappingProxyType(self._everywhere.get(key, {}))

    def fork(self) -> Annotations:
        """Return annotations with scenarios of their own.

        What is true everywhere is common to both, whoever finds it out.
        """
        other = Annotations()
        other._everywhere = self._everywhere
        return other

    def retain(self, stays: Callable[[AnyKey, Scenario | None], bool]) -> None:
        """Forget every fact whose key and scenario *stays* refuses."""
        for key in [key for key in self._everywhere if not stays(key, None)]:
            del self._everywhere[key]
        for slot in [slot for slot in self._scenarios if not stays(*slot)]:
            del self._scenarios[slot]
