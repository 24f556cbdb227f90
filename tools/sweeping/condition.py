"""`--where`: a condition on the columns of a row, read by Python's grammar.

Numbers, texts, lists of them, columns, `+ - * / %`, comparisons, `in`, `and`, `or`,
`not` and parentheses; nothing else. A comparison with a cell that is unknown is false.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from perfc.ir import UsageError
from perfc.tools.given import closest

Cells: TypeAlias = Mapping[str, Any]
Term: TypeAlias = Callable[[Cells], Any]
Condition: TypeAlias = Callable[[Cells], bool]

_LONGEST = 1000
"""Characters of a condition."""

_DEEPEST = 100
"""Parentheses and operators inside of each other."""

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda one, other: one / other,
    ast.Mod: operator.mod,
}
_COLUMN = (ast.Name, ast.Attribute)
_ORDER: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITY: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_MEMBER: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.In: lambda one, several: one in several,
    ast.NotIn: lambda one, several: one not in several,
}


def read_condition(text: str, columns: Sequence[str]) -> Condition:
    """Read a condition on rows with some columns."""
    try:
        tree = _parsed(text.strip())
        term = _Reader(columns).term(tree.body, _DEEPEST)
    except UsageError as error:
        msg = f"--where: {error}"
        raise UsageError(msg) from None

    def condition(row: Cells) -> bool:
        try:
            return bool(term(row))
        except TypeError:
            msg = f"--where {text!r} compares or computes with a text and a number"
            raise UsageError(msg) from None

    return condition


def _parsed(text: str) -> ast.Expression:
    if len(text) > _LONGEST:
        msg = f"expected at most {_LONGEST} characters, found {len(text)}"
        raise UsageError(msg)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's, about texts and literals
            return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        msg = f"{text!r} is no condition ({why}); write it as 'peak_memory_bytes < 8e9'"
        raise UsageError(msg) from None


class _Reader:
    """Turns the tree of a condition into functions of a row."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns

    def term(self, node: ast.expr, deep: int) -> Term:
        """Return the function of a part of a condition."""
        if not deep:
            msg = "it is nested too deeply"
            raise UsageError(msg)
        return self._leaf(node) or self._branch(node, deep - 1)

    def _leaf(self, node: ast.expr) -> Term | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
            value = node.value
            return lambda _: value
        return self._column(node) if isinstance(node, _COLUMN) else None

    def _branch(self, node: ast.expr, deep: int) -> Term:
        term: Term
        match node:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                term = _listed([self.term(one, deep) for one in elements])
            case ast.BoolOp(op=op, values=values):
                term = _joined(op, [self.term(one, deep) for one in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                term = _negated(self.term(operand, deep))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                term = _computed(operator.sub, lambda _: 0, self.term(operand, deep))
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _ARITHMETIC:
                terms = (self.term(left, deep), self.term(right, deep))
                term = _computed(_ARITHMETIC[type(op)], *terms)
            case ast.Compare(left=left, ops=ops, comparators=others):
                term = self._compared(ops, [left, *others], deep)
            case _:
                msg = f"{ast.unparse(node)[:40]!r} has no meaning here; there are "
                msg += "numbers, texts, columns, + - * / %, < <= == in, and, or, not"
                raise UsageError(msg)
        return term

    def _column(self, node: ast.expr) -> Term:
        """Return the function of a column: names of fields of targets have dots."""
        name = ast.unparse(node)
        if name not in self._columns:
            hint = closest(name, self._columns)
            known = hint or f"; there are {', '.join(self._columns)}"
            msg = f"no column {name[:40]!r}{known}"
            raise UsageError(msg)
        return lambda row: row[name]

    def _compared(
        self, ops: Sequence[ast.cmpop], nodes: Sequence[ast.expr], deep: int
    ) -> Term:
        tests = [_test(op) for op in ops]
        terms = [self.term(node, deep) for node in nodes]

        def term(row: Cells) -> bool:
            values = [one(row) for one in terms]
            pairs = zip(tests, values, values[1:], strict=False)
            return all(
                left is not None and right is not None and test(left, right)
                for test, left, right in pairs
            )

        return term


def _test(op: ast.cmpop) -> Callable[[Any, Any], bool]:
    test = {**_ORDER, **_EQUALITY, **_MEMBER}.get(type(op))
    if test is None:
        msg = "'is' has no meaning here; write == or !="
        raise UsageError(msg)
    return test


def _listed(terms: Sequence[Term]) -> Term:
    return lambda row: [term(row) for term in terms]


def _negated(term: Term) -> Term:
    return lambda row: not term(row)


def _joined(op: ast.boolop, terms: Sequence[Term]) -> Term:
    if isinstance(op, ast.And):
        return lambda row: all(term(row) for term in terms)
    return lambda row: any(term(row) for term in terms)


def _computed(compute: Callable[[Any, Any], Any], left: Term, right: Term) -> Term:
    """Return the function of an operation on numbers; of what is unknown, unknown."""

    def term(row: Cells) -> Any:  # noqa: ANN401 - a number, or nothing
        one, other = left(row), right(row)
        if one is None or other is None:
            return None
        if isinstance(one, str | list) or isinstance(other, str | list):
            raise TypeError
        try:
            return compute(one, other)
        except (ZeroDivisionError, OverflowError):
            return None

    return term
