"""What `--vary` says: a name, and the values that it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation

import attrs

from perfc.ir import UsageError
from perfc.ir.support import spend

Value = int | float | str

_FORMS = "expected NAME=a,b,c or NAME=lo:hi:step or NAME=lo:hi:xFACTOR"
_BETWEEN = re.compile(r",(?![^({]*[)}])")
"""A comma, but for those inside of parentheses and braces."""

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER}):(x?)({_NUMBER})")
_PLAIN = re.compile(_NUMBER)
_DIGITS = 40
"""Characters of a number: more are a typing error."""


@attrs.frozen
class Varied:
    """A name, and the values that it takes.

    Attributes:
        name: As it was given.
        values: In order, each once: all whole numbers, all numbers, or all text.

    """

    name: str
    values: tuple[Value, ...]

    @property
    def kind(self) -> str:
        """Type of its values, as the columns of tables name it."""
        name = type(self.values[0]).__name__
        return name if name in {"int", "float"} else "str"


def read_varied(text: str) -> Varied:
    """Read `NAME=a,b,c`, where an item may be a range.

    `lo:hi:step` and `lo:hi:xFACTOR` begin at `lo` and end at `hi` at the latest.
    Values of a range whose ends are whole numbers are rounded to whole numbers, unless
    its step is none.
    """
    name, equals, rest = map(str.strip, text.partition("="))
    if not equals or not name or not rest:
        msg = f"--vary {text!r}: {_FORMS}"
        raise UsageError(msg)
    try:
        return varied_of(name, list(_values(rest)))
    except UsageError as error:
        msg = f"--vary {name}: {error}"
        raise UsageError(msg) from None


def varied_of(name: str, values: Sequence[Value]) -> Varied:
    """Return a name with the values that it takes, of one type."""
    if not values:
        msg = f"{name!r} has no values: expected one or more"
        raise UsageError(msg)
    types = {type(value) for value in values}
    if types == {int, float}:
        values = [float(value) for value in values]
    elif str in types:
        values = [str(value) for value in values]
    return Varied(name, tuple(dict.fromkeys(values)))


def read_values(text: str) -> list[Value]:
    """Read `a,b,c`, where an item may be a range."""
    return list(_values(text))


def _values(text: str) -> Iterator[Value]:
    for item in map(str.strip, _BETWEEN.split(text)):
        if not item:
            msg = f"a value is missing in {text!r}; {_FORMS}"
            raise UsageError(msg)
        numbers = _RANGE.fullmatch(item)
        if numbers is None:
            yield _value(item)
        else:
            yield from _range(item, *numbers.groups())


def _value(text: str) -> Value:
    if _PLAIN.fullmatch(text) is None or len(text) > _DIGITS:
        return text
    number = _decimal(text)
    return int(text) if text.lstrip("+-").isdecimal() else float(number)


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("inf")
    if len(text) > _DIGITS or not abs(number) < Decimal("1e300"):
        msg = f"{text[:_DIGITS]} is no number that can be counted with"
        raise UsageError(msg)
    return number


def _range(item: str, first: str, last: str, times: str, step: str) -> Iterator[Value]:
    low, high, by = map(_decimal, (first, last, step))
    if high < low or (times and low <= 0) or by <= (1 if times else 0):
        what = "a factor above 1 and ends above 0" if times else "a step above 0"
        msg = f"range {item!r}: expected {what}, the lower end first"
        raise UsageError(msg)
    texts = (first, last) if times else (first, last, step)
    whole = all(text.lstrip("+").isdecimal() for text in texts)
    if not times:
        spend("configurations", float((high - low) / by), f"range {item}")
    count, number = 0, low
    while number <= high:
        count += 1
        spend("configurations", count, f"range {item}")
        yield round(number) if whole else float(number)
        number = low * by**count if times else low + by * count
