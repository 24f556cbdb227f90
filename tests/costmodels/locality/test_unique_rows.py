"""Rows that lookups touch: formulas against lookups drawn at random."""

from __future__ import annotations

import csv
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costmodels.locality.lookup import distinct_bags, drawn

from perfc.costmodels import Histogram, parse_popularity, unique_row_count
from perfc.costmodels.locality import (
    REUSE_EDGES,
    Distinct,
    Popularity,
    Uniform,
    ZipfMandelbrot,
    inclusion_shares,
    published_histogram,
    reuse_histogram,
    row_curve,
    share_noise,
)
from perfc.costmodels.locality.popularity import rank_bins

DATA = Path(os.environ.get("PERFC_DATA", Path(__file__).parents[4] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data here")


@pytest.mark.parametrize("s", [0.0, 0.4, 0.8, 1.0, 1.2, 1.5])
@pytest.mark.parametrize("q", [0.0, 10.0, 3000.0])
@pytest.mark.parametrize("rows", [10, 3000, 200_000])
def test_unique_rows_of_draws(s: float, q: float, rows: int) -> None:
    """Rows touched are within 0.5 % of those of lookups drawn."""
    popularity = parse_popularity(f"zipf-mandelbrot({s},{q})")
    lookups, repeats = 50_000, 16
    counts = [
        len(np.unique(drawn(popularity, rows, lookups, seed)))
        for seed in range(repeats)
    ]
    noise = 3 * float(np.std(counts)) / repeats**0.5
    expected = float(np.mean(counts))
    found = unique_row_count(popularity, rows, lookups)
    assert abs(found - expected) <= 0.005 * expected
    assert abs(found - expected) <= 0.0005 * expected + noise


@pytest.mark.parametrize(
    ("s", "rows", "bags", "pooling"),
    [
        (0.0, 1000, 40, 20),
        (0.6, 5000, 100, 10),
        (1.0, 1500, 64, 2),
        (1.0, 1500, 64, 3),
        (1.2, 1000, 50, 30),
        (1.5, 400, 100, 5),
        (1.5, 60, 50, 23),
        (1.5, 6, 7, 3),
    ],
)
def test_unique_rows_of_distinct_bags(
    s: float, rows: int, bags: int, pooling: int
) -> None:
    """So are rows of bags that hold none twice."""
    single = parse_popularity(f"zipf({s})")
    repeats = 4_000_000 // (rows * bags) + 20
    repeats = min(repeats, 600)
    all_bags = distinct_bags(single, rows, bags * repeats, pooling, seed=5)
    counts = [len(np.unique(part)) for part in np.split(all_bags, repeats)]
    noise = 3 * float(np.std(counts)) / repeats**0.5
    found = unique_row_count(Distinct(single), rows, bags * pooling, pooling)
    assert abs(found - np.mean(counts)) <= 0.002 * np.mean(counts) + noise


def test_bags_that_hold_all_rows() -> None:
    """A bag of as many rows as there are has them all."""
    assert unique_row_count(Distinct(ZipfMandelbrot(1)), 7, 7, 7) == pytest.approx(7)
    assert unique_row_count(Distinct(ZipfMandelbrot(1)), 7, 90, 9) == pytest.approx(7)


@given(st.floats(0, 3), st.integers(1, 5000), st.floats(0, 5000))
def test_inclusion_adds_up(s: float, rows: int, count: float) -> None:
    """Rows drawn are as many as are drawn."""
    popularity = parse_popularity(f"zipf({s})")
    found = inclusion_shares(popularity, rows, count)
    bins = rank_bins(popularity, rows)
    assert np.all((found >= 0) & (found <= 1))
    assert float(found @ bins.rows) == pytest.approx(min(count, rows), rel=2e-3)


@given(
    st.sampled_from(
        [
            *("uniform", "zipf(1)", "zipf(1.7)", "zipf-mandelbrot(0.9,500)", "zipf"),
            *("fbgemm(2)", "hist(1:50,3:20,40:2)", "distinct(zipf(1.1))"),
        ]
    ),
    st.sampled_from([1, 2, 3, 100, 2001, 10**6, 10**12]),
    st.floats(0, 1e15),
    st.floats(0, 1e12),
)
def test_curves_rise(text: str, rows: int, lookups: float, more: float) -> None:
    """More lookups touch more rows, never more than there are or are looked up."""
    popularity = parse_popularity(text)
    found = unique_row_count(popularity, rows, lookups)
    after = unique_row_count(popularity, rows, lookups + more)
    assert 0 <= found <= min(lookups, rows) * (1 + 1e-9)
    assert after >= found * (1 - 1e-9)
    assert 0 <= row_curve(popularity, rows).novelty(lookups) <= 1 + 1e-9


@pytest.mark.parametrize("text", ["uniform", "zipf(1)", "hist(1:5,2:1)", "fbgemm(1.2)"])
def test_ends(text: str) -> None:
    """No lookup touches nothing, one touches one row, very many touch all."""
    popularity = parse_popularity(text)
    assert unique_row_count(popularity, 50, 0) == 0
    assert unique_row_count(popularity, 50, 1) == pytest.approx(1, rel=0.03)
    assert unique_row_count(popularity, 50, 0.25) <= 0.25
    assert unique_row_count(popularity, 50, 1e12) == pytest.approx(50)
    assert unique_row_count(popularity, 1, 3) == pytest.approx(1)


@pytest.mark.parametrize("text", ["fbgemm(400)", "distinct(zipf(300))", "fbgemm(9999)"])
def test_rows_that_are_never_looked_up(text: str) -> None:
    """Where bags of rows that differ find too few, all that can be are touched."""
    found = unique_row_count(parse_popularity(text), 20_000, 6400, pooling=100)

    assert 1 <= found <= 6400


def test_uniform_is_the_limit_of_zipf() -> None:
    """A popularity that is nearly flat touches what a flat one does."""
    flat = unique_row_count(Uniform(), 10_000, 8000)
    assert unique_row_count(ZipfMandelbrot(1e-9), 10_000, 8000) == pytest.approx(flat)
    assert row_curve(Uniform(), 10_000).touched(8000) == pytest.approx(flat)


def test_rarefied_histogram() -> None:
    """A histogram of drawn lookups tells what fewer, or somewhat more, touch."""
    popularity, rows = ZipfMandelbrot(0.9, 50), 40_000
    lookups = drawn(popularity, rows, 200_000, seed=3)
    half = lookups[:100_000]
    hits = np.unique(np.unique(half, return_counts=True)[1], return_counts=True)
    found = Histogram(tuple(zip(*(each.tolist() for each in hits), strict=True)))
    curve = row_curve(found, rows)
    for count in (1000, 20_000, 100_000):
        expected = unique_row_count(popularity, rows, count)
        assert curve.touched(count) == pytest.approx(expected, rel=0.01)
    more = len(np.unique(lookups[:150_000]))
    assert curve.touched(150_000) == pytest.approx(more, rel=0.02)
    assert curve.touched(1e12) == pytest.approx(rows)


def test_reuse_histogram_of_draws() -> None:
    """Rows hit so and so often are as many as when lookups are drawn."""
    popularity, rows, lookups = ZipfMandelbrot(1.05), 20_000, 100_000
    found = reuse_histogram(popularity, rows, lookups)
    counts = [
        np.unique(drawn(popularity, rows, lookups, seed), return_counts=True)[1]
        for seed in range(10)
    ]
    for place, edge in enumerate((0, 1, 2, 4, 8, 16, 32)):
        high = max(2 * edge, 1)
        mine = [c[(c > edge) & (c <= high)] for c in counts]
        rows_of = float(np.mean([len(c) for c in mine]))
        hits_of = float(np.mean([c.sum() for c in mine]))
        noise = 3 / (len(counts) * rows_of) ** 0.5
        assert found.rows[place] == pytest.approx(rows_of, rel=0.002 + noise)
        assert found.lookups[place] == pytest.approx(hits_of, rel=0.002 + noise)
    assert sum(found.lookups) == pytest.approx(lookups)
    touched = unique_row_count(popularity, rows, lookups)
    assert found.touched == pytest.approx(touched, rel=1e-5)


@needs_data
def test_simulated_unique_rows() -> None:
    """Rows touched are those that another simulation found."""
    path = DATA / "locality" / "validation.csv"
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        sizes = dict(re.findall(r"(\w+)=([\d.]+)", row["config"]))
        if row["quantity"] == "unique":
            popularity = parse_popularity(f"zipf-mandelbrot({sizes['s']},{sizes['q']})")
            found = unique_row_count(popularity, int(sizes["H"]), float(row["n"]))
        elif row["quantity"] == "unique_per_batch_distinct_bags":
            popularity = Distinct(parse_popularity(f"zipf({sizes['s']})"))
            pooling = int(sizes["L"])
            lookups = int(sizes["B"]) * pooling
            found = unique_row_count(popularity, int(sizes["H"]), lookups, pooling)
        else:
            continue
        assert found == pytest.approx(float(row["simulated"]), rel=0.005), row


@pytest.mark.parametrize("popularity", [Uniform(), ZipfMandelbrot(1.1)])
def test_noise_of_shares(popularity: Popularity) -> None:
    """Shares of lookups are off by what chance leaves, as drawn lookups show."""
    rows, lookups, square = 500, 4000, 0.0
    made = np.cumsum(reuse_histogram(popularity, rows, lookups).lookups) / lookups
    for seed in range(200):
        hits = np.bincount(drawn(popularity, rows, lookups, seed), minlength=rows)
        seen = [hits[hits <= edge].sum() / lookups for edge in REUSE_EDGES[1:]]
        square += float(((made - seen) ** 2).mean()) / 200

    found = share_noise(popularity, rows, lookups)

    assert found == pytest.approx(math.sqrt(square), rel=0.1)


@needs_data
def test_published_reuse() -> None:
    """Published bins of two years' lookups say how often rows are hit in less."""
    table = DATA / "dlrm_tables" / "dlrm_datasets" / "locality_stats.csv"
    stats = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    path = DATA / "locality" / "dlrm_datasets_rarefaction.csv"
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        first = {"2021": "fbgemm_t856_bs65536.pt", "2022": "fbgemm_t788_bs131072_0.pt"}
        mine = [each for each in stats if each["file"] == first[row["year"]]]
        shares = [
            [float(e["fraction"]) for e in mine if e["statistic"] == f"{of}_fraction"]
            for of in ("unique_rows", "lookups")
        ]
        sizes = (float(mine[0]["avg_num_indices"]), float(mine[0]["avg_unique_rows"]))
        popularity = published_histogram(*sizes, *shares)
        lookups = float(row["indices"])
        reuse = lookups / unique_row_count(popularity, 10**10, lookups)
        expected = float(row["avg_reuse_from_histogram"])
        assert reuse == pytest.approx(expected, rel=0.015), row


@needs_data
def test_fitted_popularity_of_published_lookups() -> None:
    """One popularity for all tables touches as many rows as were counted."""
    path = DATA / "locality" / "dlrm_datasets_fit.csv"
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        popularity = ZipfMandelbrot(float(row["s_fit"]), float(row["q_fit"]))
        found = unique_row_count(
            popularity, int(float(row["H_fit"])), float(row["indices"])
        )
        assert found == pytest.approx(float(row["unique_rows"]), rel=0.005), row
