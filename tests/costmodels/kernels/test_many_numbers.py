"""`Many` numbers: what each of them would be alone, or an error."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels.kernels import Many, SplitError, many, parted

_NUMBERS = st.lists(st.integers(-40, 2**33), min_size=2, max_size=6)
_OTHERS = st.integers(-5, 2**33) | st.floats(-9, 1e9, allow_subnormal=False)
_CALCULATES: Any = (  # whose types are of what they are given
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.truediv,
)
_OPERATIONS: tuple[Callable[[Any, Any], Any], ...] = _CALCULATES
_COMPARISONS = (
    operator.lt,
    operator.le,
    operator.eq,
    operator.ne,
    operator.gt,
    operator.ge,
)


def listed(value: Any, count: int) -> list[Any]:
    """Return a number as it is in each configuration."""
    if type(value) is Many:
        return [*value.values.tolist()]
    return [value] * count


def same(one: Any, other: Any) -> bool:
    """Whether numbers are equal to the last bit, and of one type."""
    return type(one) is type(other) and one == other


def check(found: Any, expected: list[Any]) -> None:
    """Hold a result against one of each configuration."""
    pairs = zip(listed(found, len(expected)), expected, strict=True)
    assert all(same(*pair) for pair in pairs), (found, expected)


@given(values=_NUMBERS, other=_OTHERS, operation=st.sampled_from(_OPERATIONS))
def test_arithmetic_with_one_number(
    values: list[int], other: float, operation: Callable[[Any, Any], Any]
) -> None:
    """From the left and the right as Python does it, where it does; or it raises."""
    numbers = many(np.array(values))
    for turned in (False, True):

        def of(number: Any, *, turned: bool = turned) -> Any:
            return operation(other, number) if turned else operation(number, other)

        try:
            expected = [of(value) for value in values]
        except ZeroDivisionError:
            with pytest.raises((TypeError, ZeroDivisionError)):
                of(numbers)
            continue
        try:
            found = of(numbers)
        except TypeError:
            assert max(abs(number) for number in expected) >= 2**53
            continue
        check(found, expected)


@given(
    values=st.lists(st.tuples(st.integers(0, 999), st.integers(1, 99)), min_size=2),
    operation=st.sampled_from(_OPERATIONS),
)
def test_arithmetic_among_many(
    values: list[tuple[int, int]], operation: Callable[[Any, Any], Any]
) -> None:
    """Configuration by configuration."""
    left, right = (many(np.array(column)) for column in zip(*values, strict=True))

    check(operation(left, right), [operation(*pair) for pair in values])


@given(values=_NUMBERS, other=_OTHERS, comparison=st.sampled_from(_COMPARISONS))
def test_comparisons(
    values: list[int], other: float, comparison: Callable[[Any, Any], Any]
) -> None:
    """One truth where all agree; else whoever asks, or has it as a key, is told."""
    expected = [comparison(value, other) for value in values]
    found = comparison(many(np.array(values)), other)

    if len(set(expected)) == 1:
        assert found is expected[0]
        return
    with pytest.raises(SplitError) as caught:
        bool(found)
    assert expected == caught.value.mask.tolist()
    with pytest.raises(SplitError):
        {True: 1, False: 2}[found]
    assert [1 + n for n in expected] == listed(1 + found, len(values))


@given(values=st.lists(st.floats(0, 2**40), min_size=2, max_size=5))
def test_rounding(values: list[float]) -> None:
    """Floats become whole numbers."""
    numbers = many(np.array(values))

    for function in (math.ceil, math.floor, math.trunc, round):
        check(function(numbers), [function(value) for value in values])


@given(values=st.lists(st.integers(0, 2**40), min_size=2, max_size=5))
def test_bits(values: list[int]) -> None:
    """Bits are those of each."""
    numbers = many(np.array(values))
    if type(numbers) is Many:
        check(numbers.bit_length(), [value.bit_length() for value in values])
    check(
        1 << (numbers.bit_length() - 1 + 1),
        [1 << value.bit_length() for value in values],
    )


def test_products_and_sums_of_python() -> None:
    """The built-in functions take them."""
    numbers = many(np.array([3, 5, 7]))

    check(math.prod((2, numbers, 4)), [24, 40, 56])
    check(sum([numbers, 1, numbers]), [7, 11, 15])
    check(-(-numbers // 4), [1, 2, 2])
    assert max(numbers, 2) is numbers
    with pytest.raises(SplitError):
        max(numbers, 4)


def test_what_they_are() -> None:
    """`isinstance` says what each is; equal ones are one number."""
    numbers = many(np.array([3, 5]))

    assert isinstance(numbers, int)
    assert isinstance(numbers / 2, float)
    assert type(many(np.array([4, 4]))) is int
    assert type(numbers // numbers) is int
    assert type(parted(numbers, np.array([1]))) is int
    assert parted(7, np.array([1])) == 7
    assert (numbers / 1).is_integer() is True


_USES: dict[str, Callable[[Any], object]] = {
    "hash": hash,
    "text": str,
    "int": int,
    "float": float,
    "array": np.asarray,
    "logarithm": math.log2,
    "format": lambda n: f"{n}",
    "key": lambda n: {n: 1},
    "digits": lambda n: round(n, 1),
    "root": lambda n: n**0.5,
    "times an array": lambda n: np.ones(2) * n,
    "array of floats": lambda n: np.array([n], dtype=np.float64),
    "large": lambda n: n * 2**62,
    "division by one that is zero": lambda n: 1 // (n - 3),
    "division by zero": lambda n: n / 0,
}


@pytest.mark.parametrize("use", _USES.values(), ids=_USES)
def test_no_one_of_them_is_taken_for_all(use: Callable[[Any], object]) -> None:
    """What needs one number, or more than 64 bits, raises."""
    with pytest.raises(TypeError):
        use(many(np.array([3, 5])))


def test_a_loop_of_many_lengths_is_parted() -> None:
    """Those that count like the first go on together."""
    with pytest.raises(SplitError) as caught:
        range(many(np.array([2, 4, 2])))

    assert [True, False, True] == caught.value.mask.tolist()
    with pytest.raises(TypeError):
        range(many(np.array([2.5, 4.0])))
