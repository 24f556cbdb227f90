"""Elementwise calls whose operands are not all alike: broadcast, converted, with holes.

What a row says decides: `tensor_inputs` are as large as the result, `bytes` beyond
those and the result are what else is read, and `scattered` says that elements do not
lie alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import torch

from perfc.measure.case import DTYPES_OF_TENSORS, Call, Case, Tensors
from perfc.measurements import bytes_of

_ATEN: Any = torch.ops.aten
_NARROW, _WIDE, _BOOL, _WHOLE = "bf16", "fp32", "bool", "int64"
_CAST_FROM: Mapping[tuple[str, int], tuple[str, str]] = MappingProxyType(
    {
        (_WIDE, 6): (_NARROW, _WIDE),
        (_WIDE, 12): (_WHOLE, _WIDE),
        (_WIDE, 5): (_BOOL, _WIDE),
        (_NARROW, 6): (_WIDE, _NARROW),
        ("fp16", 6): (_WIDE, "fp16"),
        (_WHOLE, 9): (_WHOLE, _BOOL),
    }
)
"""Types before and after a cast, by its dtype and the bytes per element that it moves.
"""

_PAIRS: Mapping[str, Callable[[Any, Any], object]] = MappingProxyType(
    {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "pow": torch.pow,
        "and": torch.logical_and,
        "threshold_backward": lambda g, y: _ATEN.threshold_backward(g, y, 0),
    }
)
"""Functions of two operands, either of which may be one number."""

_ALONE: Mapping[str, Callable[[torch.Tensor], object]] = MappingProxyType(
    {"copy": lambda x: x.contiguous(), "neg": torch.neg, "div": lambda x: x / 2.0}
)
"""Functions of one operand that does not lie in one piece."""

_NUMBER = 3.0
"""The other operand where it is one number."""


@attrs.frozen
class _Said:
    """What the parameters of a row say.

    Attributes:
        case: With its parameters.

    """

    case: Case

    @property
    def kind(self) -> str:
        """Kind of the function."""
        return self.case.params.text("kind")

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.case.params.integer("rows")

    @property
    def cols(self) -> int:
        """Columns of the result."""
        return self.case.params.integer("cols")

    @property
    def full_inputs(self) -> int:
        """How many operands are as large as the result."""
        return self.case.params.integer("tensor_inputs")

    @property
    def scattered(self) -> bool:
        """Whether elements that belong together do not lie alike."""
        return "scattered" in self.case.params

    @property
    def more(self) -> int:
        """Elements that are read besides; below zero where operands are narrower."""
        return self._more_bytes // int(bytes_of(self.case.dtype))

    @property
    def _more_bytes(self) -> int:
        elements = (1 + self.full_inputs) * self.rows * self.cols
        full = int(bytes_of(self.case.dtype)) * elements
        return self.case.params.integer("bytes", full) - full

    @property
    def has_number(self) -> bool:
        """Whether one number is read besides: it may be wider than the tensors."""
        wide = self._more_bytes == int(bytes_of(_WIDE)) and self.more != self.cols
        return self.more == 1 or wide

    @property
    def bytes_each(self) -> int:
        """Read and written for each element."""
        return self.case.params.integer("bytes", 0) // (self.rows * self.cols)

    @property
    def alone(self) -> bool:
        """Whether one operand, with a number at most, does not lie in one piece."""
        one = self.full_inputs == 1 and (self.has_number or self.more == 0)
        return self.scattered and one


@attrs.frozen(eq=False)
class _Operands(_Said):
    """Makes what the parameters of a row say.

    Attributes:
        tensors: What makes them.

    """

    tensors: Tensors

    def full(self, dtype: str = "") -> torch.Tensor:
        """Return an operand as large as the result, in one piece."""
        return self.tensors.random(dtype or self.case.dtype, self.rows, self.cols)

    def in_pieces(self) -> torch.Tensor:
        """Return such an operand with a hole behind each sample's part."""
        pieces = self.case.params.integer("batch", self.rows)
        each = self.rows * self.cols // pieces
        whole = self.tensors.random(self.case.dtype, pieces, 2 * each)
        return whole.view(pieces, 2, -1, self.cols)[:, 0]

    def turned(self) -> torch.Tensor:
        """Return such an operand whose two last axes lie the other way about."""
        batch = self.case.params.integer("batch", 1)
        each = self.rows // batch
        return self.tensors.random(self.case.dtype, batch, self.cols, each).mT

    def repeated(self, elements: int) -> torch.Tensor:
        """Return an operand of some elements that is broadcast to all: rows first."""
        if elements == self.rows != self.cols:
            return self.tensors.random(self.case.dtype, elements, 1)
        return self.tensors.random(self.case.dtype, elements // self.cols, self.cols)


def is_special(case: Case) -> bool:
    """Whether operands are not just as many tensors, each like the result."""
    return "scattered" in case.params or case.params.get("kind") in _SPECIAL


def knows(case: Case) -> bool:
    """Whether it can make such operands and has the function."""
    said = _Said(case)
    if said.kind == "cast":
        return (case.dtype, said.bytes_each) in _CAST_FROM
    if said.kind in _SPECIAL:
        return True
    if not said.scattered and not said.full_inputs:
        return said.kind == "copy"
    return said.kind in (_ALONE if said.alone else _PAIRS)


def special_call(case: Case, tensors: Tensors) -> Call:
    """Make the operands, and return the call."""
    operands = _Operands(case, tensors)
    return _SPECIAL.get(operands.kind, _scattered)(operands)


def _cast(o: _Operands) -> Call:
    source, to = _CAST_FROM[o.case.dtype, o.bytes_each]
    x, dtype = o.full(source), DTYPES_OF_TENSORS[to]
    return lambda: x.to(dtype)


def _where(o: _Operands) -> Call:
    mask = o.full(_BOOL)
    one, other = (o.tensors.random(o.case.dtype, 1).view(()) for _ in range(2))
    return lambda: torch.where(mask, one, other)


def _scattered(o: _Operands) -> Call:
    if o.alone:
        # One number for each row is what a mean's gradient is.
        base = o.tensors.random(o.case.dtype, o.rows, 1)
        x = base.expand(o.rows, o.cols) if o.has_number else o.in_pieces()
        function = _ALONE[o.kind]
        return lambda: function(x)
    a, b = _pair(o)
    both = _PAIRS[o.kind]
    return lambda: both(a, b)


def _pair(o: _Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two operands that do not lie alike, or are not of one type or size."""
    if not o.full_inputs:
        column = o.repeated(o.rows)
        row = o.repeated(o.more - o.rows)
        return column.view(-1, row.shape[0], 1), row
    if o.full_inputs == 1:
        other = o.repeated(o.more)
        x = o.full()
        return (x if other.shape[-1] == 1 else x.view(-1, *other.shape)), other
    if o.more:
        return o.full(), o.full(_NARROW)
    samples = o.case.params.integer("batch", o.rows)
    in_pieces = o.kind == "threshold_backward" or samples == o.rows
    other = o.in_pieces() if in_pieces else o.turned()
    return o.full().view(other.shape), other


def with_number(case: Case, tensors: Tensors) -> Call | None:
    """Return the call whose other operand is one number, passed by value, if it is one.

    A row that counts the number's bytes has one; a copy then repeats it.
    """
    operands = _Operands(case, tensors)
    if not operands.has_number:
        return None
    if not operands.full_inputs:
        one, out = tensors.random(case.dtype, 1), operands.full()
        return lambda: out.copy_(one)
    x, function = operands.full(), _PAIRS[operands.kind]
    return lambda: function(x, _NUMBER)


_SPECIAL: Mapping[str, Callable[[_Operands], Call]] = MappingProxyType(
    {"cast": _cast, "where": _where}
)
"""Functions that prepare calls of special kinds, by kind."""
