"""The pass interface: what a pass may read and must write is declared data."""

from __future__ import annotations

import abc
from typing import ClassVar, TypeVar, cast

import attrs

from perfc.costmodels import Target
from perfc.ir import AnnotationKey, AnyKey, Diagnostic, Program
from perfc.ir.annotations import Anchor, Annotations, Scenario
from perfc.ir.support import Level, PassContractError

T = TypeVar("T")
_NO_KEYS: frozenset[AnyKey] = frozenset()


class Pass(abc.ABC):
    """One step of the analysis. Subclasses are frozen; fields are options.

    A pass leaves the program valid, and may expect it to be valid.

    Attributes:
        name: What pipelines call it; also the words of its file and class.
        requires: Facts it reads.
        provides: Facts it writes, for every anchor there is.

    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[AnyKey]] = frozenset()
    provides: ClassVar[frozenset[AnyKey]] = frozenset()

    def __init_subclass__(cls) -> None:
        """Refuse a declaration that is no set of fact keys.

        Raises:
            PassContractError: one is not.

        """
        for field in ("requires", "provides", "preserves"):
            keys: object = getattr(cls, field, _NO_KEYS)
            if not _are_keys(keys):
                msg = (
                    f"{cls.__name__}.{field} is {keys!r}, expected a frozenset of fact "
                    "keys, as frozenset({LAUNCHES})"
                )
                raise PassContractError(msg)

    @abc.abstractmethod
    def run(self, program: Program, ctx: PassContext) -> Program | None:
        """Analyse *program*, reading `requires` and writing `provides`.

        Returns:
            The program to go on with, if a transform makes another: one of more
            ranks, of other classes of ranks. None otherwise.

        """


def _are_keys(declared: object) -> bool:
    if not isinstance(declared, frozenset | set):
        return False
    keys = cast("frozenset[object] | set[object]", declared)
    return all(isinstance(key, AnnotationKey) for key in keys)


class Transform(Pass):
    """A pass that changes op graphs in place.

    After it every fact is dropped that it neither provides nor preserves.

    Attributes:
        preserves: Facts that stay true.

    """

    preserves: ClassVar[frozenset[AnyKey]] = frozenset()


@attrs.frozen
class PassContext:
    """What the pass manager hands to a running pass.

    Attributes:
        owner: The running pass.
        annotations: All facts; read and write them with `get` and `set`.
        system: The target, or None in a pipeline that needs none.
        scenario: Names the facts that depend on target, runtime and binding.
        diagnostics: Where remarks go.

    """

    owner: Pass
    annotations: Annotations
    system: Target | None
    scenario: Scenario | None
    diagnostics: list[Diagnostic]

    @property
    def target(self) -> Target:
        """The target.

        Raises:
            PassContractError: the pipeline runs without one.

        """
        if self.system is None:
            msg = f"pass {self.owner.name!r} needs a target; give one with --target"
            raise PassContractError(msg)
        return self.system

    def get(self, key: AnnotationKey[T], anchor: Anchor) -> T:
        """Read a declared fact."""
        if key not in self.owner.requires | self.owner.provides:
            msg = f"pass {self.owner.name!r} reads {key} without requiring it"
            raise PassContractError(msg)
        return self.annotations.get(key, anchor, self.scenario)

    def find(self, key: AnnotationKey[T], anchor: Anchor) -> T | None:
        """Read a declared fact that an earlier run may have left, else None."""
        if key not in self.owner.requires | self.owner.provides:
            msg = f"pass {self.owner.name!r} reads {key} without requiring it"
            raise PassContractError(msg)
        return self.annotations.table(key, self.scenario).get(anchor)

    def set(self, key: AnnotationKey[T], anchor: Anchor, fact: T) -> None:
        """Write a declared fact."""
        if key not in self.owner.provides:
            msg = f"pass {self.owner.name!r} writes {key} without providing it"
            raise PassContractError(msg)
        self.annotations.set(key, anchor, fact, self.scenario)

    def warn(self, code: str, message: str, where: str = "") -> None:
        """Tell the user something that may make the result wrong."""
        self._say(Diagnostic(Level.WARNING, code, message, where))

    def note(self, code: str, message: str, where: str = "") -> None:
        """Tell the user something worth knowing."""
        self._say(Diagnostic(Level.NOTE, code, message, where))

    def _say(self, remark: Diagnostic) -> None:
        """Keep a remark, once: classes of ranks may give rise to the same."""
        if remark not in self.diagnostics:
            self.diagnostics.append(remark)
