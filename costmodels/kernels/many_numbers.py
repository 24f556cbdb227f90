"""Numbers of many configurations at once, which stand for one in rules of lowering.

A rule that is written for numbers is run on `Many` of them: arithmetic goes element by
element, exactly as Python's, and what a rule asks of a number (`if x > 1`) it is told
where all configurations agree. Where they do not, `SplitError` says which do, and
whoever runs the rule parts them and runs it again for each part. Whatever else would
need the one number there is not (a range, a text, a key of a dictionary) raises.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels.signatures import Flags, Floats

Numbers: TypeAlias = NDArray[np.int64] | Floats
Array: TypeAlias = NDArray[Any]

_EXACT = 2**53
"""Whole numbers below it are floats, too."""
_LARGE = 2**63
"""Whole numbers below it are in an array what they are in Python."""


class SplitError(Exception):
    """Configurations do not agree.

    Attributes:
        mask: Which of them say yes, shape (configurations,).

    """

    def __init__(self, mask: Flags) -> None:
        """Note which say yes."""
        super().__init__("configurations do not agree")
        self.mask = mask


class ManyError(TypeError):
    """Many numbers were asked for what only one number can be, or are too large."""


class Many:
    """One number for each of several configurations, not all of them equal.

    Whether it is whole or not, `isinstance` says, as of one number.

    Attributes:
        values: The numbers, int64 or float64, shape (configurations,).
        low: No whole number is less; -inf of others.
        high: No whole number is greater; inf of others.
        whole: Whether they are whole numbers.

    """

    __slots__ = ("high", "low", "values", "whole")
    __array_ufunc__ = None

    def __init__(self, values: Numbers, low: float, high: float) -> None:
        """Note the numbers, and between which they are."""
        self.values, self.low, self.high = values, low, high
        self.whole = values.dtype.kind == "i"

    @property  # type: ignore[misc] # rules ask what a number is
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return int if self.whole else float

    def __repr__(self) -> str:
        return f"Many({self.values!r})"

    def __str__(self) -> str:
        msg = "many numbers have no text"
        raise ManyError(msg)

    def __format__(self, _: str) -> str:
        return str(self)

    def __array__(self, *_: object, **__: object) -> Array:
        msg = "many numbers are no array of a rule"
        raise ManyError(msg)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        """Part them by what they are: a loop is as long as a number says."""
        if not self.whole:
            msg = "numbers that are not whole count nothing"
            raise ManyError(msg)
        raise SplitError(self.values == self.values[0])

    def __int__(self) -> int:
        msg = "many numbers are no one number"
        raise ManyError(msg)

    __float__ = __int__
    __hash__ = __int__

    def __eq__(self, other: object) -> Any:
        return self is other or _compared(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return self is not other and _compared(operator.ne, self, other)

    def __lt__(self, other: object) -> Any:
        return _compared(operator.lt, self, other)

    def __le__(self, other: object) -> Any:
        return _compared(operator.le, self, other)

    def __gt__(self, other: object) -> Any:
        return _compared(operator.gt, self, other)

    def __ge__(self, other: object) -> Any:
        return _compared(operator.ge, self, other)

    def __add__(self, other: object) -> Any:
        return _sum(self, other)

    def __radd__(self, other: object) -> Any:
        return _sum(other, self)

    def __sub__(self, other: object) -> Any:
        return _difference(self, other)

    def __rsub__(self, other: object) -> Any:
        return _difference(other, self)

    def __mul__(self, other: object) -> Any:
        return _product(self, other)

    def __rmul__(self, other: object) -> Any:
        return _product(other, self)

    def __floordiv__(self, other: object) -> Any:
        if self.whole and type(other) is int and other == 1:
            return self
        return _quotient(np.floor_divide, self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return _quotient(np.floor_divide, other, self)

    def __mod__(self, other: object) -> Any:
        return _quotient(np.remainder, self, other)

    def __rmod__(self, other: object) -> Any:
        return _quotient(np.remainder, other, self)

    def __truediv__(self, other: object) -> Any:
        return _ratio(self, other)

    def __rtruediv__(self, other: object) -> Any:
        return _ratio(other, self)

    def __neg__(self) -> Any:
        return Many(-self.values, -self.high, -self.low)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return many(np.abs(self.values))

    def __ceil__(self) -> Any:
        return self._rounded(np.ceil)

    def __floor__(self) -> Any:
        return self._rounded(np.floor)

    def __trunc__(self) -> Any:
        return self._rounded(np.trunc)

    def __round__(self, digits: None = None) -> Any:
        if digits is not None:
            msg = "many numbers are rounded to whole numbers only"
            raise ManyError(msg)
        return self._rounded(np.rint)

    def _rounded(self, function: Callable[[Any], Floats]) -> Any:
        if self.whole:
            return self
        found = function(self.values)
        if not (np.abs(found) < _EXACT).all():
            msg = "numbers are too large to be rounded exactly"
            raise ManyError(msg)
        return many(found.astype(np.int64))

    def __rlshift__(self, other: object) -> Any:
        if other != 1 or not 0 <= self.low <= self.high < _BITS:
            return NotImplemented
        return many(np.left_shift(1, self.values))

    def bit_length(self) -> Any:
        """Return how many bits each number has; as of an int."""
        if not 0 <= self.low <= self.high < _EXACT:
            msg = "numbers are too large for their bits"
            raise ManyError(msg)
        return many(np.frexp(self.values.astype(np.float64))[1].astype(np.int64))

    def is_integer(self) -> Any:
        """Whether each number is whole; as of a float."""
        return _agreed(np.floor(self.values) == self.values)

    def each(self, function: Callable[[Array], Array]) -> Any:
        """Apply a function to the array of the numbers."""
        return many(function(self.values))


_BITS = 62


class Truths:
    """Whether something holds for each of several configurations: for some of them."""

    __slots__ = ("mask",)
    __array_ufunc__ = None

    def __init__(self, mask: Flags) -> None:
        """Note for which."""
        self.mask = mask

    @property  # type: ignore[misc] # rules ask what a truth is
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return bool

    def __repr__(self) -> str:
        return f"Truths({self.mask!r})"

    def __str__(self) -> str:
        msg = "many truths have no text"
        raise ManyError(msg)

    def __format__(self, _: str) -> str:
        return str(self)

    def __bool__(self) -> bool:
        raise SplitError(self.mask)

    def __hash__(self) -> int:
        """Part them by what they are, as a key is one or the other."""
        raise SplitError(self.mask)

    def __eq__(self, other: object) -> Any:
        return _counted(self) == _counted(other)

    def __ne__(self, other: object) -> Any:
        return _counted(self) != _counted(other)

    def __add__(self, other: object) -> Any:
        return _sum(_counted(self), other)

    def __radd__(self, other: object) -> Any:
        return _sum(other, _counted(self))

    def __rsub__(self, other: object) -> Any:
        return _difference(other, _counted(self))

    def __mul__(self, other: object) -> Any:
        return _product(_counted(self), other)

    def __rmul__(self, other: object) -> Any:
        return _product(other, _counted(self))


def many(values: Array) -> Any:
    """Return numbers of configurations: the one number, where all have the same."""
    if values.dtype.kind == "i":
        low, high = int(values.min()), int(values.max())
        return low if low == high else Many(values, low, high)
    if not (values != values[0]).any():
        return float(values[0])
    return Many(values, -math.inf, math.inf)


def many_of(value: object) -> Many | None:
    """Return many numbers that a rule takes for one; None for one."""
    return value if type(value) is Many else None


def parted(value: Any, rows: NDArray[np.intp]) -> Any:
    """Return a number, or many of them, for some of the configurations."""
    return many(value.values[rows]) if type(value) is Many else value


def _counted(value: object) -> object:
    """Return a truth as a number, 1 or 0."""
    if type(value) is Truths:
        return Many(value.mask.astype(np.int64), 0, 1)
    return int(value) if type(value) is bool else value


def _operand(value: object) -> tuple[Any, float, float, bool] | None:
    """Return an operand as numpy takes it, its bounds, and whether it is whole."""
    kind = type(value)
    if kind is Many:
        some = cast("Many", value)
        return some.values, some.low, some.high, some.whole
    if kind is int or kind is float:
        number = cast("float", value)
        return number, number, number, kind is int
    if kind is Truths or kind is bool:
        return _operand(_counted(value))
    return None


def _pair(
    left: object, right: object
) -> tuple[Any, Any, tuple[float, float, float, float], bool] | None:
    """Return both operands, their bounds, and whether both are whole numbers.

    Whole numbers beside others become floats, exactly.
    """
    one, other = _operand(left), _operand(right)
    if one is None or other is None:
        return None
    bounds = one[1], one[2], other[1], other[2]
    if one[3] and other[3]:
        return one[0], other[0], bounds, True
    for operand in (one, other):
        if operand[3]:
            _require(max(-operand[1], operand[2]) <= _EXACT)
    return one[0], other[0], bounds, False


def _require(holds: bool) -> None:
    if not holds:
        msg = "numbers are too large to be exact in an array"
        raise ManyError(msg)


def _whole(values: Any, low: float, high: float) -> Any:
    return low if low == high else Many(values, low, high)


def _sum(left: object, right: object) -> Any:
    pair = _pair(left, right)
    if pair is None:
        return NotImplemented
    one, other, (a, b, c, d), whole = pair
    if not whole:
        return many(one + other)
    low, high = a + c, b + d
    _require(-_LARGE < low <= high < _LARGE > max(b, d, -a, -c))
    return _whole(one + other, low, high)


def _difference(left: object, right: object) -> Any:
    pair = _pair(left, right)
    if pair is None:
        return NotImplemented
    one, other, (a, b, c, d), whole = pair
    if not whole:
        return many(one - other)
    _require(-_LARGE < a - d <= b - c < _LARGE > max(b, d, -a, -c))
    return many(one - other)  # of numbers that go alike, as the batch and one less


def _product(left: object, right: object) -> Any:
    pair = _pair(left, right)
    if pair is None:
        return NotImplemented
    one, other, (a, b, c, d), whole = pair
    if not whole:
        return many(one * other)
    corners = (a * c, b * d) if a >= 0 <= c else (a * c, a * d, b * c, b * d)
    low, high = min(corners), max(corners)
    _require(-_LARGE < low <= high < _LARGE > max(b, d, -a, -c))
    return _whole(one * other, low, high)


def _quotient(function: np.ufunc, left: object, right: object) -> Any:
    pair = _pair(left, right)
    if pair is None:
        return NotImplemented
    one, other, (a, b, c, d), whole = pair
    if not (c > 0 or d < 0) and not np.all(other != 0):
        msg = "a number of many is divided by zero"
        raise ManyError(msg)
    if whole:
        _require(max(b, d, -a, -c) < _LARGE)
    return many(function(one, other))


def _ratio(left: object, right: object) -> Any:
    pair = _pair(left, right)
    if pair is None:
        return NotImplemented
    one, other, (a, b, c, d), whole = pair
    if whole:
        _require(max(b, d, -a, -c) <= _EXACT)
    if not np.all(other != 0):
        msg = "a number of many is divided by zero"
        raise ManyError(msg)
    return many(one / other)


def _compared(
    function: Callable[[Any, Any], Any], left: Many, right: object
) -> bool | Truths | Any:
    pair = _pair(left, right)
    if pair is None:
        return NotImplemented
    one, other, (a, b, c, d), whole = pair
    if whole and (b < c or a > d):  # the same whatever they are
        return function(0, 1) if b < c else function(1, 0)
    return _agreed(function(one, other))


def _agreed(mask: Flags) -> bool | Truths:
    count = int(np.count_nonzero(mask))
    return Truths(mask) if 0 < count < len(mask) else bool(count)
