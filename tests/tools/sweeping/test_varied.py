"""What `--vary` says is read, or refused with a line."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import PerfcError, UsageError
from perfc.tools.sweeping import read_varied
from perfc.tools.sweeping.varied import varied_of


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("batch=512,1024", "batch", (512, 1024)),
        ("batch=512:2048:x2", "batch", (512, 1024, 2048)),
        ("batch=100:350:100", "batch", (100, 200, 300)),
        ("batch=1,8:16:8", "batch", (1, 8, 16)),
        ("batch=256:1100:x1.5", "batch", (256, 384, 576, 864)),
        ("gpu.x=0.1:0.5:0.1", "gpu.x", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("gpu.x=0:1:0.5", "gpu.x", (0.0, 0.5, 1.0)),
        ("gpu.x=1,2.5", "gpu.x", (1.0, 2.5)),
        ("dtype=fp32, bf16", "dtype", ("fp32", "bf16")),
        ("max_rows=none,10", "max_rows", ("none", "10")),
        ("popularity=uniform,zipf(1.05)", "popularity", ("uniform", "zipf(1.05)")),
        (
            "popularity=zipf-mandelbrot(0.98,1400),uniform",
            "popularity",
            ("zipf-mandelbrot(0.98,1400)", "uniform"),
        ),
        (
            "place=hbm,uvm-caching{cache=0.1,rows=1000}",
            "place",
            ("hbm", "uvm-caching{cache=0.1,rows=1000}"),
        ),
        ("dim:seq=128,128,256", "dim:seq", (128, 256)),
        ("bottom=512-512,256-64", "bottom", ("512-512", "256-64")),
    ],
)
def test_forms(text: str, name: str, values: tuple[object, ...]) -> None:
    """Lists, ranges, and lists with ranges in them; a value twice is one."""
    varied = read_varied(text)

    assert (name, values) == (varied.name, varied.values)
    assert {type(value) for value in values} == {type(v) for v in varied.values}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch", "--vary 'batch': expected NAME=a,b,c or NAME=lo:hi:step or "),
        ("batch=", "expected NAME=a,b,c"),
        ("=1,2", "expected NAME=a,b,c"),
        ("batch=1,,2", "a value is missing in '1,,2'"),
        ("batch=10:1:1", "range '10:1:1': expected a step above 0"),
        ("batch=1:10:0", "expected a step above 0"),
        ("batch=1:10:-1", "expected a step above 0"),
        ("batch=1:10:x1", "expected a factor above 1 and ends above 0"),
        ("batch=0:10:x2", "expected a factor above 1 and ends above 0"),
        ("batch=1:1e299:1", "configurations of a sweep"),
        ("batch=1:9:x1.0000000001", "configurations of a sweep"),
        ("batch=1:1e999:x2", "no number that can be counted with"),
    ],
)
def test_refusals(text: str, says: str) -> None:
    """A form that says nothing, a range that is empty or does not end."""
    with pytest.raises(PerfcError) as refused:
        read_varied(text)

    assert says in str(refused.value)
    assert 1 == len(str(refused.value).splitlines())


def test_no_values() -> None:
    """A list from Python may be empty, which varies nothing."""
    with pytest.raises(UsageError, match="'batch' has no values"):
        varied_of("batch", [])


@given(st.integers(0, 10**6), st.integers(0, 10**4), st.integers(1, 10**4))
def test_steps_are_those_of_range(low: int, length: int, step: int) -> None:
    """Whole numbers go as Python's `range` does, the end among them."""
    varied = read_varied(f"batch={low}:{low + length}:{step}")

    assert tuple(range(low, low + length + 1, step)) == varied.values


@given(
    st.decimals(0, 1000, places=3),
    st.decimals(0, 100, places=3),
    st.decimals("0.25", 50, places=3),
)
def test_steps_are_exact(low: object, length: object, step: object) -> None:
    """Fractions do not drift: each is the number that is nearest to what is meant."""
    start, more, by = (Fraction(str(one)) for one in (low, length, step))
    values = read_varied(f"gpu.x={low}:{float(start + more)!r}:{step}").values

    count = int(more / by) + 1
    assert [float(start + n * by) for n in range(count)] == [*map(float, values)]


@given(st.integers(1, 1000), st.integers(1, 10**6), st.integers(2, 9))
def test_factors_multiply(low: int, most: int, factor: int) -> None:
    """Each value is the factor times the one before, as long as it is in the range."""
    values = read_varied(f"batch={low}:{low + most}:x{factor}").values

    assert low == values[0]
    assert all(after == factor * int(before) for before, after in pairwise(values))
    assert int(values[-1]) <= low + most < int(values[-1]) * factor


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20))
def test_numbers_come_back(numbers: list[int]) -> None:
    """A list is what was written, each once, in order."""
    varied = read_varied("batch=" + ",".join(map(str, numbers)))

    assert tuple(dict.fromkeys(numbers)) == varied.values
    assert "int" == varied.kind


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    """No text ends in anything but values or a line."""
    with suppress(PerfcError):
        varied = read_varied(text)

        assert varied.values
        assert 1 == len({type(value) for value in varied.values})
