"""What equal calls become: ops, and where their operands and results stand."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from perfc.ir import Record, TensorType
from perfc.ir.dims import Dim


@attrs.frozen
class Operand:
    """A tensor that a step reads: an argument, or what an earlier step made.

    Attributes:
        place: Where it stands among the arguments and what the steps make.
        type: Its type.
        elements: Its elements, where it is a constant.

    """

    place: int
    type: TensorType
    elements: tuple[Dim, ...] | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.type.rank


@attrs.frozen
class SparseOperand:
    """A sparse tensor that is an argument: two tensors here."""

    indices: Operand
    values: Operand


@attrs.frozen(eq=False)
class Step:
    """One op that a call becomes.

    Attributes:
        op: The op.
        operands: Places of its operands.
        attributes: Its attributes.
        types: The types of its results.
        results: For each of them the result of the call that it is; -1 for what
            only another step reads.

    """

    op: str
    operands: tuple[int, ...]
    attributes: Record
    types: tuple[TensorType, ...]
    results: tuple[int, ...]


Place: TypeAlias = "int | tuple[int, int] | None"
"""Place of a result: two of a sparse one, None of one that no step makes."""


@attrs.frozen(eq=False)
class Template:
    """What equal calls become.

    Attributes:
        steps: Ops, in order.
        places: Where the results stand.
        misfit: Why the call is an `unknown` op though its name is in the map.
        assumption: What the steps take for granted that data decide.

    """

    steps: tuple[Step, ...]
    places: tuple[Place, ...]
    misfit: str = ""
    assumption: str = ""
