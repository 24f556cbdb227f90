"""The pass interface: what a pass may read and must write is declared data."""

from __future__ import annotations

import abc
import enum
from collections.abc import Sequence
from typing import ClassVar, TypeVar, cast

import attrs

from perfc.costmodels import Target
from perfc.ir import AnnotationKey, AnyKey, Diagnostic, Program
from perfc.ir.annotations import Anchor, Annotations, Scenario
from perfc.ir.support import Level, PassContractError

T = TypeVar("T")
_NO_KEYS: frozenset[AnyKey] = frozenset()


class Phase(enum.IntEnum):
    """Place of a transform in a pipeline, from first to last."""

    SOURCE = enum.auto()
    """It raises or resolves what an exporter wrote, before anything is added."""

    FORWARD = enum.auto()
    """It changes the forward pass, of which the backward pass is derived."""

    DERIVE_BACKWARD = enum.auto()
    """It derives the backward pass and adds the optimizer."""

    AFTER_BACKWARD = enum.auto()
    """It changes a whole step."""

    LAST = enum.auto()
    """It changes what all others have made, as single ranks."""


class Pass(abc.ABC):
    """One step of the analysis. Subclasses are frozen; fields are options.

    A pass leaves the program valid, and may expect it to be valid.

    Attributes:
        name: What pipelines call it; also the words of its file and class.
        requires: Facts it reads.
        provides: Facts it writes, for every anchor there is.
        runs_after: Names of passes that run before it where both are in a pipeline.
        runs_before: Names of passes that run after it.
        runtime: Runtime whose launches it makes of eager PyTorch's, one of
            `RUNTIME_PASSES`; empty if it makes none.
        microbatches: Over how many it adds gradients up; 0 if over none.
        param_dtype: Type that it gathers parameters in; empty for their own.

    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[AnyKey]] = frozenset()
    provides: ClassVar[frozenset[AnyKey]] = frozenset()
    runs_after: ClassVar[frozenset[str]] = frozenset()
    runs_before: ClassVar[frozenset[str]] = frozenset()
    runtime: ClassVar[str] = ""
    microbatches: int = 0
    param_dtype: str = ""

    def __init_subclass__(cls) -> None:
        """Refuse a declaration that is no set of fact keys."""
        for field in ("requires", "provides", "preserves"):
            keys: object = getattr(cls, field, _NO_KEYS)
            if not _are_keys(keys):
                msg = (
                    f"{cls.__name__}.{field} is {keys!r}, expected a frozenset of fact "
                    "keys, as frozenset({LAUNCHES})"
                )
                raise PassContractError(msg)
        for field in ("runs_after", "runs_before"):
            names: object = getattr(cls, field)
            if not isinstance(names, frozenset | set):
                msg = (
                    f"{cls.__name__}.{field} is {names!r}, expected a frozenset of "
                    'names of passes, as frozenset({"training"})'
                )
                raise PassContractError(msg)

    def precedes(self, other: Pass) -> bool:
        """Whether this pass has to run before *other* where both are in a pipeline."""
        return other.name in self.runs_before or other.follows(self)

    def follows(self, other: Pass) -> bool:
        """Whether it says itself that it has to run after *other*."""
        return other.name in self.runs_after

    @property
    def converts_to(self) -> str:
        """What `--dtype` calls the type that it gives a whole model; empty for none."""
        return ""

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
        phase: Where it belongs in a pipeline. A text that names every pass may say
            otherwise.
        shares: What each of its `ranks` has of a model that it spreads: `batch`, a
            batch of its own; `layers`, a part of the layers of one batch; nothing for
            transforms that spread none.

    """

    preserves: ClassVar[frozenset[AnyKey]] = frozenset()
    phase: ClassVar[Phase] = Phase.AFTER_BACKWARD
    shares: ClassVar[str] = ""

    def brings(self, others: Sequence[Pass]) -> Sequence[Pass]:
        """Return the passes that a pipeline with this one needs besides.

        Args:
            others: All passes of the pipeline.

        """
        return ()


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
        """The target."""
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
