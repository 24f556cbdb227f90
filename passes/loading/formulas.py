"""Formulas of stage files: arithmetic on numbers with names, and nothing else."""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Mapping

from perfc.ir import UsageError

_MOST = 1000
"""Characters of a formula; what is longer is no formula of a person's."""


def _divided(one: float, other: float) -> float:
    return one / other


def _ceil(number: float) -> float:
    return float(math.ceil(number))


def _least(*numbers: float) -> float:
    return min(numbers)


def _most(*numbers: float) -> float:
    return max(numbers)


_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.Pow: math.pow,
}
_OF_ONE: Mapping[str, Callable[[float], float]] = {
    "ceil": _ceil,
    "sqrt": math.sqrt,
    "log2": math.log2,
}
_OF_SOME: Mapping[str, Callable[..., float]] = {"min": _least, "max": _most}


def value_of(formula: str, values: Mapping[str, float]) -> float:
    """Return the value of a formula.

    Args:
        formula: As `edges / edges_per_us + nodes * bytes / bytes_per_us`.
        values: What its names stand for.

    """
    if len(formula) > _MOST:
        msg = f"a formula of {len(formula)} characters, expected at most {_MOST}"
        raise UsageError(msg)
    try:
        return _value(ast.parse(formula.strip(), mode="eval").body, values)
    except ZeroDivisionError:
        return math.inf
    except (OverflowError, ValueError) as error:
        msg = f"formula {formula!r} has no value: {error}"
        raise UsageError(msg) from None
    except (SyntaxError, RecursionError, MemoryError):
        msg = f"formula {formula!r} is none; expected numbers, names, + - * / ** ( )"
        raise UsageError(msg) from None


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if number is not True:
            return float(number)
        case ast.Name(id=name):
            return _named(name, values)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if (
            name in _OF_ONE
        ):
            return _OF_ONE[name](_value(argument, values))
        case ast.Call(
            func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]
        ) if name in _OF_SOME:
            return _OF_SOME[name](*(_value(each, values) for each in arguments))
        case _:
            msg = f"{ast.unparse(node)!r} is no part of a formula"
            raise UsageError(msg)


def _named(name: str, values: Mapping[str, float]) -> float:
    if name in values:
        return values[name]
    close = difflib.get_close_matches(name, values, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(values)}"
    msg = f"a formula names {name!r}, which has no value; {hint}"
    raise UsageError(msg)
