"""What lookups cost whose rows are not equally popular."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costmodels.signatures import ALL_MODELS, bag, update

from perfc.costmodels import KernelTable, load_target, lower_bound, price
from perfc.ir import Kernel, Record

V100 = load_target("v100-sxm2-16g")
LARGER = load_target("v100-sxm2-16g", {"gpu.l2_mib": "50"})
ROWS = 4_000_000


def seconds(*kernels: Kernel) -> list[float]:
    """Price kernels with the built-in models."""
    return [float(s) for s in price(kernels, V100, ALL_MODELS).seconds]


def popular(text: str) -> Kernel:
    """Return a lookup of many rows."""
    return bag(8192, 4, ROWS, 20, 128, popularity=text)


@pytest.mark.parametrize("made", [bag, update])
def test_skew_saves_traffic(made: Callable[..., Kernel]) -> None:
    """The more unequal rows are, the less a lookup costs, and its update."""
    texts = ("uniform", "zipf(0.6)", "zipf(0.9)", "zipf(1.2)", "zipf(1.5)")
    found = seconds(*(made(8192, 4, ROWS, 20, 128, popularity=t) for t in texts))
    assert all(less <= more * (1 + 1e-9) for more, less in pairwise(found))
    assert found[-1] < 0.7 * found[0]


@pytest.mark.parametrize("text", ["zipf(0)", "zipf-mandelbrot(0,50)", "fbgemm(1)", ""])
def test_flat_is_uniform(text: str) -> None:
    """Ways to say that all rows are alike cost the same."""
    uniform, flat = seconds(popular("uniform"), popular(text))

    assert pytest.approx(uniform, rel=0.01) == flat


def test_nearly_flat_is_nearly_uniform() -> None:
    """A popularity that is hardly skewed costs what a flat one does, to 10 %.

    Misses of uniform lookups count a cache that is empty at first as a warm one.
    """
    for rows in (2000, 200_000, 40_000_000):
        uniform, flat = seconds(
            *(
                bag(4096, 2, rows, 20, 64, popularity=t)
                for t in ("uniform", "zipf(1e-6)")
            )
        )
        assert pytest.approx(uniform, rel=0.1) == flat


def test_tables_have_their_own() -> None:
    """A table's own popularity goes before that of the op."""
    tables = tuple(
        Record({"rows": ROWS, "dim": 128, "pooling": 20, "popularity": text})
        for text in ("zipf(1.2)", "uniform")
    )
    kernel = bag(8192, 2, ROWS, 20, 128)
    mixed = Kernel(
        *(kernel.op, kernel.dtype, kernel.math),
        kernel.params.updated(tables=tables, popularity="zipf(1.5)"),
        kernel.work,
    )
    skewed, both, uniform = seconds(
        bag(8192, 2, ROWS, 20, 128, popularity="zipf(1.2)"), mixed, kernel
    )

    assert skewed < both < uniform


def test_a_larger_cache_misses_less() -> None:
    """What skew saves grows with L2, which holds more of the popular rows."""
    saved = [
        1 - float.__truediv__(*map(float, price(pair, target, ALL_MODELS).seconds))
        for target in (V100, LARGER)
        for pair in [(popular("zipf(0.8)"), popular("uniform"))]
    ]

    assert saved[0] < saved[1]


def test_an_unknown_popularity_is_left_to_the_roofline() -> None:
    """A row of measurements may say what none can read: it is priced by bytes."""
    priced = price([popular("as in production")], V100, ALL_MODELS)

    assert "roofline" == priced.model[0]


@given(
    st.sampled_from(["zipf(1)", "zipf", "fbgemm(1.2)", "hist(1:90,50:2)"]),
    st.integers(1, 10**9),
    st.integers(1, 10**5),
    st.one_of(st.integers(1, 200), st.floats(0.1, 100)),
)
def test_never_below_the_bound(text: str, rows: int, batch: int, pooling: int) -> None:
    """Rows that are touched must be read, whatever their popularity."""
    kernel = bag(batch, 1, rows, pooling, 64, popularity=text)
    (least_s,) = lower_bound(KernelTable([kernel]), V100)

    assert 0 < least_s <= seconds(kernel)[0] * (1 + 1e-9)
