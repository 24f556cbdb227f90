"""Formulas as text, found in graphs: `mul(g, sub(1, mul(y, y)))`.

A name stands for any value, the same one wherever it occurs; `_` for any value at all;
a number for a constant, or a tensor filled with it; `?` for any such number. What adds,
multiplies or compares alike is found in either order. Copies, and axes of one element
that are put in for broadcasting, are looked through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import attrs

from perfc.ir import Node, Value
from perfc.ir.node_kinds import has_trait
from perfc.ir.opdef import Trait

_TOKEN = re.compile(r"\s*([A-Za-z_][\w]*|-?\d+(?:\.\d+)?|[(),?])")
_SEEN_THROUGH = frozenset(("copy", "unsqueeze"))
_PAIR = 2


@attrs.frozen
class Name:
    """Any value, under a name."""

    name: str


@attrs.frozen
class Number:
    """A constant; any one if it is None."""

    value: float | None


@attrs.frozen
class Call:
    """An op applied to terms; further operands do not matter."""

    op: str
    operands: tuple[Term, ...]


Term: TypeAlias = "Name | Number | Call"


@attrs.frozen
class Found:
    """What a term was found to be.

    Attributes:
        values: Values by name.
        nodes: The nodes of the calls, the last one first.

    """

    values: Mapping[str, Value] = attrs.field(factory=dict[str, Value])
    nodes: tuple[Node, ...] = ()

    def first(self, op: str) -> Node:
        """Return the first node of an op that the term has."""
        return next(node for node in self.nodes if node.op == op)


def parse_term(text: str) -> Call:
    """Read a formula.

    Raises:
        ValueError: the text is none.

    """
    tokens = _TOKEN.findall(text)
    term = _parsed(tokens)
    if tokens or not isinstance(term, Call):
        msg = f"not a formula: {text}"
        raise ValueError(msg)
    return term


def _parsed(tokens: list[str]) -> Term:
    """Take one term off the front."""
    word = tokens.pop(0)
    if word == "?":
        return Number(None)
    if word[0].isdigit() or word[0] == "-":
        return Number(float(word))
    if not tokens or tokens[0] != "(":
        return Name(word)
    operands: list[Term] = []
    while tokens.pop(0) != ")":
        operands.append(_parsed(tokens))
    return Call(word, tuple(operands))


def find_term(term: Term, value: Value, found: Found | None = None) -> Iterator[Found]:
    """Yield every way in which *value* is what the term says."""
    found = found or Found()
    if isinstance(term, Number):
        number = number_of(value)
        if number is not None and term.value in (None, number):
            yield found
    elif isinstance(term, Call):
        yield from _find_call(term, value, found)
    elif term.name == "_" or found.values.get(term.name, value) is value:
        yield attrs.evolve(found, values={**found.values, term.name: value})


def number_of(value: Value) -> float | None:
    """Return the number that a constant, or every element of a tensor, is."""
    node = value.producer
    if node is None or node.op not in ("constant", "fill"):
        return None
    number = node.attributes.get("value")
    elements = node.attributes.get("elements")
    if isinstance(elements, tuple) and len(elements) == 1:
        number = elements[0]
    return float(number) if isinstance(number, int | float) else None


def _find_call(term: Call, value: Value, found: Found) -> Iterator[Found]:
    node = value.producer
    while node is not None and node.op in _SEEN_THROUGH and node.op != term.op:
        node = node.operands[0].producer
    if node is None or node.op != term.op or len(node.operands) < len(term.operands):
        return
    here = attrs.evolve(found, nodes=(*found.nodes, node))
    yield from _find_all(term.operands, node.operands, here)
    if has_trait(node, Trait.COMMUTATIVE) and len(node.operands) == _PAIR:
        yield from _find_all(term.operands, node.operands[::-1], here)


def _find_all(
    terms: tuple[Term, ...], values: tuple[Value, ...], found: Found
) -> Iterator[Found]:
    if not terms:
        yield found
        return
    for first in find_term(terms[0], values[0], found):
        yield from _find_all(terms[1:], values[1:], first)
