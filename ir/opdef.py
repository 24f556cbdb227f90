"""What an op means, independent of any target.

One `OpDef` holds every fact that is true of the op on all hardware: its arity,
its attributes, its result types, the work it does, what it aliases and mutates.
Time on a given target is not such a fact; cost models keep those rules in their
own tables.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

import attrs

from perfc.ir.dims import Dim
from perfc.ir.launch import Work
from perfc.ir.record import Record
from perfc.ir.support import UnknownOpError
from perfc.ir.types import TensorType

Ratio: TypeAlias = tuple[tuple[Dim, ...], int]
"""Numerators, and the denominator that they share."""


@attrs.frozen
class Abstract:
    """What is known of a value before running: its type, and small integers.

    Attributes:
        type: Element type and shape.
        elements: For shape arithmetic, the elements in row-major order.
        ratio: For floats of it that are no whole numbers, numerators in that order
            and their denominator.

    """

    type: TensorType
    elements: tuple[Dim, ...] | None = None
    ratio: Ratio | None = None


InferRule: TypeAlias = Callable[
    [Record, Sequence[Abstract]], "Sequence[Abstract | None]"
]
"""(attributes, operands) -> results; None keeps what the node declares.

Raises `VerifyError` on a mismatch.
"""

WorkRule: TypeAlias = Callable[
    [Record, Sequence[TensorType], Sequence[TensorType]], Work
]
"""(attributes, operand types, result types) -> work, by plain arithmetic."""


class Trait(StrEnum):
    """What is true of an op wherever it runs: its value is the sentence that says so.

    What PyTorch or a compiler decides about ops is no trait; the code that follows
    them keeps its own tables.
    """

    FREE = "nothing runs for it: it is a constant, or asks for the size of a tensor"
    HOST = "it keeps the host, and the device has nothing to do"
    ELEMENTWISE = "an element of a result depends on one element of each operand"
    COMMUTATIVE = "its two operands may change places"
    KEEPS_SHAPE = "result 0 has the shape of operand 0"
    KEEPS_ORDER = "result 0 is a view of all elements of operand 0, in their order"
    CONVERTS = "result 0 has the elements of operand 0, perhaps in another type"
    LOOKUP = "it reads those elements of operand 0 that indices name"
    EMBEDDING_BAG = "it pools rows of embedding tables, or makes the tables' gradient"
    STATISTICS = "it normalizes by statistics of operand 0, which its gradient reads"
    RANDOM = "it draws random numbers"
    COLLECTIVE = "all members of a communicator run it together"
    SUMMED_GRADIENT = "ranks all-reduce the gradients of its operand 0"


@attrs.frozen(kw_only=True)
class OpDef:
    """The definition of one op.

    Attributes:
        name: As printed.
        arity: Least and greatest number of operands; None for no limit.
        results: Number of results; None where the node decides.
        infer: Type rule, which also folds shape arithmetic.
        work: Flops and compulsory bytes.
        attributes: Attribute names and the Python types allowed; an attribute
            is optional where `type(None)` is among them.
        view: Operand that result 0 aliases: no work, no kernel.
        mutates: Operands written in place.
        regions: Number of regions.
        traits: What else is true of it on every target.
        summary: One line for `perfc ops`.

    """

    name: str
    arity: tuple[int, int | None]
    infer: InferRule
    work: WorkRule
    summary: str
    results: int | None = 1
    attributes: Mapping[str, tuple[type, ...]] = attrs.field(
        factory=dict[str, "tuple[type, ...]"]
    )
    view: int | None = None
    mutates: tuple[int, ...] = ()
    regions: int = 0
    traits: frozenset[Trait] = frozenset()

    def arity_problem(self, count: int) -> str | None:
        """Return the problem of *count* operands, or None."""
        least, most = self.arity
        if count >= least and (most is None or count <= most):
            return None
        limits = str(least) if least == most else f"{least} to {most or 'any'}"
        return f"expected {limits} operands, got {count}"


def named(*ops: OpDef) -> Mapping[str, OpDef]:
    """Return ops by name. Duplicate names are an error, never an override.

    Raises:
        ValueError: two have the same name.

    """
    found: dict[str, OpDef] = {}
    for op in ops:
        if op.name in found:
            msg = f"op {op.name!r} is defined twice"
            raise ValueError(msg)
        found[op.name] = op
    return found


def names_with(trait: Trait, ops: Mapping[str, OpDef]) -> frozenset[str]:
    """Return the names of those ops of a family that have a trait."""
    return frozenset(name for name, op in ops.items() if trait in op.traits)


@attrs.frozen
class OpRegistry:
    """Op definitions by name, which may be a table that loads them when asked."""

    _defs: Mapping[str, OpDef]
    _found: dict[str, OpDef] = attrs.field(factory=dict[str, OpDef], init=False)
    """Definitions that were asked for: a lookup is on the way of every node."""

    def __contains__(self, name: str) -> bool:
        return name in self._defs

    def find(self, name: str) -> OpDef | None:
        """Return the op called *name*, or None."""
        found = self._found.get(name)
        if found is None and name in self._defs:
            found = self._found[name] = self._defs[name]
        return found

    def __getitem__(self, name: str) -> OpDef:
        found = self.find(name)
        if found is not None:
            return found
        close = difflib.get_close_matches(name, self._defs, n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "see `perfc ops`"
        msg = f"unknown op {name!r}; {hint}"
        raise UnknownOpError(msg)

    def __iter__(self) -> Iterator[OpDef]:
        return iter(self._defs.values())
