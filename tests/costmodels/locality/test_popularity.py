"""Popularity of rows: its text, and groups of rows that sums run over."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import Histogram, parse_popularity
from perfc.costmodels.locality import (
    Distinct,
    FbgemmAlpha,
    Popularity,
    PopularityError,
    PowerLaw,
    Uniform,
    ZipfMandelbrot,
)
from perfc.costmodels.locality.popularity import rank_bins

EXPONENTS = st.floats(0, 3, allow_nan=False)
SHIFTS = st.floats(0, 1e5, allow_nan=False)
SINGLE: st.SearchStrategy[Popularity] = st.one_of(
    st.just(Uniform()),
    st.builds(ZipfMandelbrot, EXPONENTS.filter(bool), SHIFTS),
    st.builds(PowerLaw, EXPONENTS),
    st.builds(FbgemmAlpha, EXPONENTS),
    st.builds(
        Histogram,
        st.lists(
            st.tuples(st.floats(1, 1e6), st.floats(1e-3, 1e9)), min_size=1, max_size=9
        ),
    ),
)
POPULARITIES = st.one_of(SINGLE, st.builds(Distinct, SINGLE))


@given(POPULARITIES)
def test_text_round_trip(popularity: Popularity) -> None:
    """What a popularity prints is read as the same."""
    assert parse_popularity(str(popularity)) == popularity


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Uniform()),
        ("uniform", Uniform()),
        (" zipf( 1.05 ) ", ZipfMandelbrot(1.05)),
        ("zipf(0)", Uniform()),
        ("zipf", PowerLaw(1.05)),
        ("zipf-mandelbrot(0.98,1400)", ZipfMandelbrot(0.98, 1400)),
        ("fbgemm(1.15)", FbgemmAlpha(1.15)),
        ("hist(7:2,1:100)", Histogram(((1, 100), (7, 2)))),
        ("distinct(zipf(1))", Distinct(ZipfMandelbrot(1))),
    ],
)
def test_texts(text: str, expected: Popularity) -> None:
    """Each form has its meaning; nothing is uniform, `zipf` is what is measured."""
    assert parse_popularity(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("zip(1)", "zipf()", "zipf(a)", "zipf(1,2)", "uniform(1)", "ü", "zipf(1"),
        *("hist()", "hist(1)", "hist(1:1,)", "distinct()", "distinct(zap)", "(1)"),
    ],
)
def test_no_popularity(text: str) -> None:
    """Other text is refused in one line that lists the forms."""
    with pytest.raises(PopularityError, match=r"is no popularity; expected uniform, "):
        parse_popularity(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("zipf(-1)", "exponent of a popularity is -1; expected a number of at least 0"),
        ("zipf(nan)", "is nan; expected"),
        ("power-law(inf)", "is inf; expected"),
        ("zipf-mandelbrot(1,-3)", "shift of a popularity is -3"),
        ("hist(0.5:10)", "hits of a row that was hit is 0.5"),
        ("hist(2:0)", "0 rows in a histogram"),
    ],
)
def test_impossible_numbers(text: str, problem: str) -> None:
    """Numbers that cannot be are refused by name."""
    with pytest.raises(PopularityError, match=problem):
        parse_popularity(text)


@given(POPULARITIES, st.sampled_from([1, 2, 3, 1999, 2000, 2001, 5000, 10**9, 10**15]))
def test_probabilities_add_up(popularity: Popularity, rows: int) -> None:
    """Groups have all rows, the most popular first, and a share of 1 in all."""
    bins = rank_bins(popularity, rows)
    if "hist" in str(popularity):  # of more rows: a share of them, fractional
        assert np.all((bins.probability >= 0) & (bins.probability <= 1))
        return
    assert bins.total_rows == rows
    assert float(bins.probability @ bins.rows) == pytest.approx(1)
    # Equal ones differ by what a float resolves.
    assert np.all(np.diff(bins.probability) <= 1e-12 * bins.probability[:-1])


@pytest.mark.parametrize("s", [0.0, 0.3, 1.0, 1.0 + 1e-13, 1.5, 2.5])
@pytest.mark.parametrize("q", [0.0, 1400.0])
def test_groups_against_rows(s: float, q: float) -> None:
    """A sum over groups is that over the rows, to a millionth."""
    rows, lookups = 300_000, 200_000
    each = (np.arange(1.0, rows + 1) + q) ** -s
    each /= each.sum()
    bins = rank_bins(ZipfMandelbrot(s, q), rows)
    expected = np.sum(-np.expm1(lookups * np.log1p(-each)))
    missed = -np.expm1(lookups * np.log1p(-bins.probability))
    assert float(bins.rows @ missed) == pytest.approx(float(expected), rel=1e-6)


def test_folded_tail() -> None:
    """FBGEMM's ranks beyond the table are those of its rows again."""
    rows, alpha, folds = 50, 1.5, 200_000
    ranks = np.arange(folds)[:, None] * rows + np.arange(1.0, rows + 1)
    expected = np.sum(ranks**-alpha, axis=0)
    expected /= expected.sum()
    found = rank_bins(FbgemmAlpha(alpha), rows).probability
    assert found == pytest.approx(expected, rel=2e-3)


def test_power_law_is_the_density_between_ranks() -> None:
    """A power law has what its density has from one rank to the next."""
    ends = np.arange(1.0, 102) ** (1 - 1.45)
    expected = -np.diff(ends) / (ends[0] - ends[-1])
    found = rank_bins(PowerLaw(1.45), 100).probability
    assert found == pytest.approx(expected, rel=1e-9)


def test_rows_never_hit_have_a_share() -> None:
    """A histogram leaves rows that it has not seen the share of those seen once."""
    bins = rank_bins(Histogram(((1, 20), (10, 8))), 1000)
    assert bins.total_rows == 1000
    assert float(bins.probability[-1] * bins.rows[-1]) == pytest.approx(20 / 100)


def test_histogram_of_many_tables() -> None:
    """A table of fewer rows than a histogram's has its share of them."""
    whole = Histogram(((1, 2000), (5, 1000)))
    assert whole.within(300) == Histogram(((1, 200), (5, 100)))
