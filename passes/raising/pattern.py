"""What the passes share that recognise an op spelled out in several.

A pattern is followed backwards from its last node. What it goes through must be
read inside the pattern only; names, the order of nodes and of commutative
operands are immaterial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import attrs

from perfc.ir import AttrValue, Graph, Node, Record, Value
from perfc.ir.core import Replacement
from perfc.ir.dims import Dim
from perfc.ir.support import VerifyError

_MAX_STEPS = 12
"""Longer chains than any exporter writes to make one number are not followed."""

SAME_NUMBER = frozenset(
    ("identity", "cast", "cast_like", "reshape", "squeeze", "unsqueeze", "expand")
)
"""Ops that keep the one number that a tensor holds."""

CASTS = frozenset({"identity", "cast", "cast_like"})

_UNARY: Mapping[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "reciprocal": lambda a: 1 / a,
    "neg": lambda a: -a,
}
_BINARY: Mapping[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": math.pow,
}


@attrs.frozen(eq=False)
class Raised:
    """An op found in several nodes.

    Attributes:
        op: What they compute.
        operands: Of what.
        attributes: And how.
        inside: The nodes, the last one first.
        turned: Operands whose last two axes have to be swapped first.

    """

    op: str
    operands: tuple[Value, ...]
    attributes: Mapping[str, AttrValue]
    inside: tuple[Node, ...]
    turned: tuple[int, ...] = ()


@attrs.define(eq=False)
class Trail:
    """One attempt to follow a pattern; it notes the nodes that it goes through.

    Attributes:
        elements: Integer tensors known before running.
        inside: The nodes so far.

    """

    elements: Mapping[Value, tuple[Dim, ...]]
    inside: list[Node] = attrs.field(factory=list[Node], init=False)

    def step(self, value: Value, *ops: str) -> Node | None:
        """Go through the producer of *value* if it is one of *ops*."""
        node = value.producer
        if node is None or node.op not in ops:
            return None
        if node not in self.inside:
            self.inside.append(node)
        return node

    def through(self, value: Value, ops: Collection[str]) -> Value:
        """Go through any number of *ops*, along operand 0."""
        while node := self.step(value, *ops):
            value = node.operands[0]
        return value

    def number(self, value: Value) -> float | None:
        """Return the one number that *value* is known to hold before running."""
        if value.type is None or value.type.numel != 1:
            return None
        return _number(value, self.elements, _MAX_STEPS)

    def uniform(self, value: Value) -> float | None:
        """Return the one number that all elements of *value* are, if known."""
        return _number(value, self.elements, _MAX_STEPS)

    def is_number(self, value: Value, expected: float) -> bool:
        """Whether *value* is known to be *expected*, in fp16 or better."""
        found = self.number(value)
        return found is not None and math.isclose(found, expected, rel_tol=1e-3)

    def by_number(self, value: Value, *ops: str) -> tuple[Value, float] | None:
        """Go through a node that takes one number beside a tensor."""
        node = value.producer
        if node is None or node.op not in ops:
            return None
        pairs = [node.operands] if node.op in _ORDERED else orders(node)
        for tensor, other in pairs:
            found = self.number(other)
            if found is not None:
                self.step(value, node.op)
                return tensor, found
        return None

    def by(self, value: Value, op: str, expected: float) -> Value | None:
        """Go through *op* with the number *expected*; return the tensor."""
        mark = len(self.inside)
        found = self.by_number(value, op)
        if found is None or not math.isclose(found[1], expected, rel_tol=1e-3):
            del self.inside[mark:]
            return None
        return found[0]


_ORDERED = frozenset({"sub", "div", "pow"})
"""Ops whose operands cannot change places."""


def orders(node: Node) -> Sequence[tuple[Value, Value]]:
    """Return both orders of the operands of a commutative node of two."""
    if len(node.operands) != 2:
        return ()
    left, right = node.operands
    return ((left, right), (right, left))


def _number(
    value: Value, elements: Mapping[Value, tuple[Dim, ...]], steps: int
) -> float | None:
    known = elements.get(value)
    if known and len(set(known)) == 1 and isinstance(known[0], int):
        return float(known[0])
    node = value.producer
    if node is None or steps == 0:
        return None
    if node.op in ("constant", "fill"):
        found = node.attributes.get("value")
        return float(found) if isinstance(found, int | float) else None
    if node.op in SAME_NUMBER:
        return _number(node.operands[0], elements, steps - 1)
    numbers: list[float] = []
    for operand in node.operands:
        number = _number(operand, elements, steps - 1)
        if number is None:
            return None
        numbers.append(number)
    return _applied(node.op, numbers)


def _applied(op: str, numbers: Sequence[float]) -> float | None:
    try:
        match numbers:
            case [a] if op in _UNARY:
                return _UNARY[op](a)
            case [a, b] if op in _BINARY:
                return _BINARY[op](a, b)
            case _:
                return None
    except (ArithmeticError, ValueError):
        return None


def raise_patterns(
    graph: Graph,
    roots: Collection[str],
    match: Callable[[Node], Raised | None],
    *,
    spelled_out: bool = True,
) -> None:
    """Replace what *match* finds, from the end, so that the longest form wins.

    Args:
        graph: The op graph.
        roots: Ops that a pattern may end with.
        match: Finds the pattern that ends with a node.
        spelled_out: Whether to replace what the source itself spells out.

    """
    replacements: dict[Node, Replacement] = {}
    taken: set[Node] = set()
    returned = set(graph.outputs)
    for node in reversed(tuple(graph)):
        if node.op not in roots or node in taken:
            continue
        raised = match(node)
        if raised is None or not taken.isdisjoint(raised.inside):
            continue
        if not spelled_out and "spelled_out" in raised.attributes:
            continue
        if _is_read_elsewhere(graph, node, raised.inside, returned):
            continue
        taken.update(raised.inside)
        replacements[node] = Replacement(
            raised.op,
            _operands(graph, node, raised),
            Record(raised.attributes),
            node.results[0],
            node.location,
        )
    if replacements:
        graph.replace(replacements)
        graph.erase_dead(keep=lambda node: node.has_effect)
        graph.erase_unused_parameters()


def _operands(graph: Graph, root: Node, raised: Raised) -> tuple[Value, ...]:
    return tuple(
        _swapped(graph, root, value) if index in raised.turned else value
        for index, value in enumerate(raised.operands)
    )


def _swapped(graph: Graph, root: Node, value: Value) -> Value:
    """Swap the last two axes of *value*, in one step with a transposition before."""
    type_ = value.type
    if type_ is None:
        msg = f"{value} has no type; run shape-inference first"
        raise VerifyError(msg)
    source, perm = value, tuple(range(type_.rank))
    before = value.producer
    if before is not None and before.op == "transpose":
        source, perm = before.operands[0], before.attributes.integers("perm")
    perm = (*perm[:-2], perm[-1], perm[-2])
    shape = (*type_.shape[:-2], type_.shape[-1], type_.shape[-2])
    made = (f"{value.name}.turned", attrs.evolve(type_, shape=shape))
    return graph.insert(root, "transpose", (source,), made, {"perm": perm})


def _is_read_elsewhere(
    graph: Graph, root: Node, inside: Collection[Node], returned: Collection[Value]
) -> bool:
    """Whether something else reads what is computed on the way."""
    within = set(inside)
    for node in inside:
        if node is root:
            continue
        for value in node.results:
            if value in returned:
                return True
            if not within.issuperset(graph.readers(value)):
                return True
    return False


def one_call(inside: Sequence[Node]) -> bool | None:
    """Whether all nodes were exported from one framework call; None if not noted."""
    origins = {node.location.origin for node in inside}
    if "" in origins:
        return None
    return len(origins) == 1


def same_shape(*values: Value) -> bool:
    """Whether all values have one shape."""
    shapes = {value.type.shape for value in values if value.type is not None}
    return len(shapes) == 1


def calls(
    inside: Sequence[Node], letter: Callable[[Value], str | None]
) -> tuple[AttrValue, ...]:
    """Write the calls of a source that spells an op out.

    See `lowering/eager/spelled_out.py`.

    Args:
        inside: The nodes, the last one first.
        letter: What stands for an operand; None for one that is a number.

    """
    # What two branches read is met behind the first of them, and comes before both.
    ordered: dict[Node, None] = {}

    def put(node: Node) -> None:
        for value in node.operands:
            if value.producer in members and value.producer not in ordered:
                put(value.producer)
        ordered[node] = None

    members = frozenset(inside)
    for node in reversed(inside):
        if node not in ordered:
            put(node)
    written: list[str] = []
    for node in ordered:
        name = str(node.attributes["kind"]) if node.op == "reduce" else node.op
        letters = [found for v in node.operands if (found := letter(v)) is not None]
        if not letters or node.op in _VIEWS:
            continue
        inverted = name in ("reciprocal", "div") and letters == ["r"]
        if inverted and written and written[-1] == "sqrt(r)":
            written[-1] = "rsqrt(r)"
            continue
        order = sorted(letters, key=_SIZES.index)
        written.append(f"{name}({', '.join(order)})")
    return tuple(written)


_VIEWS = frozenset({"identity", "reshape", "transpose", "squeeze", "unsqueeze"})
_SIZES = "xhrqskvcwbm"
"""Letters, those of large tensors first."""
