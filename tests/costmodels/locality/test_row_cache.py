"""Misses of caches of rows: formulas against caches that run."""

from __future__ import annotations

import csv
import itertools
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costmodels.locality.lookup import distinct_bags, drawn, each_row, misses

from perfc.costmodels import Histogram, parse_popularity, unique_row_count
from perfc.costmodels.locality import (
    Distinct,
    ZipfMandelbrot,
    batch_fill,
    cold_misses,
    fifo_miss_share,
    look_ahead,
    lru_miss_share,
    miss_curve,
    row_curve,
    rows_for_hits,
    static_miss_share,
)

DATA = Path(os.environ.get("PERFC_DATA", Path(__file__).parents[4] / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data here")
TEXTS = ("uniform", "zipf(0.5)", "zipf(1)", "zipf(1.5)", "zipf-mandelbrot(1.1,1000)")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("rows", "cached"), [(2, 1), (10, 3), (300, 290), (5000, 40), (50_000, 4000)]
)
def test_misses_of_caches_that_run(text: str, rows: int, cached: int) -> None:
    """Misses of LRU caches, empty at first and warm, are within 1.5 %."""
    popularity, count = parse_popularity(text), 120_000
    lookups = drawn(popularity, rows, count, seed=11)
    cold = misses(lookups, cached)
    found = cold_misses(popularity, rows, cached, count)
    assert found == pytest.approx(cold, rel=0.015, abs=3 * math.sqrt(cold))
    after = misses(lookups, cached, warm=count // 2)
    share = after / (count - count // 2)
    noise = 3 * math.sqrt(after) / (count - count // 2)
    expected = lru_miss_share(popularity, rows, cached)
    if unique_row_count(popularity, rows, count // 2) > cached:  # the cache is full
        assert expected == pytest.approx(share, rel=0.015, abs=noise)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("rows", "cached"), [(300, 150), (5000, 60), (30_000, 4000)])
def test_misses_of_first_in_first_out(text: str, rows: int, cached: int) -> None:
    """Misses of caches that replace the oldest row are within 1.5 %, and more."""
    popularity, count = parse_popularity(text), 120_000
    lookups = drawn(popularity, rows, count, seed=12)
    after = misses(lookups, cached, warm=count // 2, replaced="fifo") / (count // 2)
    found = fifo_miss_share(popularity, rows, cached)
    assert found == pytest.approx(after, rel=0.015, abs=3 * math.sqrt(after / count))
    assert found >= lru_miss_share(popularity, rows, cached) * (1 - 1e-9)


def test_static_cache_has_the_most_popular_rows() -> None:
    """The share of the most popular rows is what a fixed cache of them hits."""
    popularity = ZipfMandelbrot(1.1)
    shares = each_row(popularity, 9000)
    for cached in (1, 77, 8999):
        expected = 1 - float(np.sum(shares[:cached]))
        found = static_miss_share(popularity, 9000, cached)
        assert found == pytest.approx(expected, rel=1e-3)


@given(st.sampled_from(TEXTS), st.sampled_from([1, 2, 50, 10**9]), st.floats(0, 1e10))
def test_ends_of_miss_shares(text: str, rows: int, cached: float) -> None:
    """No cache hits nothing, one of all rows everything; a fixed one hits most."""
    popularity = parse_popularity(text)
    for share in (lru_miss_share, fifo_miss_share, static_miss_share):
        assert share(popularity, rows, 0) == 1
        assert share(popularity, rows, rows) == pytest.approx(0, abs=1e-9)
        assert -1e-9 <= share(popularity, rows, cached) <= 1
    best = static_miss_share(popularity, rows, math.floor(cached))
    assert best <= lru_miss_share(popularity, rows, math.floor(cached)) + 1e-6


@given(
    st.sampled_from([*TEXTS, "hist(1:50,3:20,40:2)", "distinct(zipf(1))"]),
    st.sampled_from([1, 2, 50, 10**9]),
    st.floats(0, 1e10),
    st.floats(0, 1e10),
)
def test_cold_misses_lie_between(
    text: str, rows: int, cached: float, lookups: float
) -> None:
    """A cold cache misses every row once at least, and no lookup twice."""
    popularity = parse_popularity(text)
    found = cold_misses(popularity, rows, cached, lookups)
    touched = unique_row_count(popularity, rows, lookups)
    assert touched * (1 - 1e-6) <= found + 1e-9
    assert found <= lookups * (1 + 1e-9)


def test_cold_misses_of_a_histogram() -> None:
    """A histogram of a trace tells the misses of a cache that it runs through."""
    popularity, rows, count = ZipfMandelbrot(0.9, 30), 30_000, 100_000
    lookups = drawn(popularity, rows, count, seed=8)
    hits = np.unique(np.unique(lookups, return_counts=True)[1], return_counts=True)
    found = Histogram(tuple(zip(*(each.tolist() for each in hits), strict=True)))
    for cached in (500, 5000, 15_000):
        expected = misses(lookups, cached)
        misses_of = cold_misses(found, rows, cached, count)
        assert misses_of == pytest.approx(expected, rel=0.015)


def test_batch_fill_of_batches_that_run() -> None:
    """A cache filled by batches fetches what one does that runs, within 1.5 %."""
    popularity, rows, bags, pooling = ZipfMandelbrot(0.9), 4000, 32, 20
    batches = 240
    runs = distinct_bags(popularity, rows, bags * batches, pooling, 4)
    parts = [np.unique(part) for part in np.split(runs, batches)]
    for window in (1, 3, 10):
        last_seen = np.full(rows, -(10**9))
        fetched: list[int] = []
        resident: list[int] = []
        for number, part in enumerate(parts):
            if number >= 2 * window:
                fetched.append(int(np.sum(last_seen[part] < number - window)))
                resident.append(int(np.sum(last_seen >= number - window)))
            last_seen[part] = number
        curve = row_curve(Distinct(popularity), rows, pooling)
        filled = batch_fill(curve, float(np.mean(resident)), bags * pooling)
        assert filled.window == pytest.approx(window, rel=0.02)
        assert filled.fetched == pytest.approx(float(np.mean(fetched)), rel=0.015)


def test_batches_that_do_not_fit() -> None:
    """Rows of a batch beyond the cache are read past it; a full cache fetches none."""
    curve = row_curve(ZipfMandelbrot(1.05), 100_000)
    touched = curve.touched(50_000)
    tight = batch_fill(curve, 1000, 50_000)
    assert tight.straight == pytest.approx(touched - 1000)
    assert 1000 < tight.fetched <= touched
    assert batch_fill(curve, 0, 50_000).straight == pytest.approx(touched)
    assert batch_fill(curve, 100_000, 50_000).fetched == 0
    assert batch_fill(curve, 1000, 0).touched == 0


def test_rows_for_hits_is_the_inverse() -> None:
    """The cache that is asked for hits as asked; one row less does not."""
    popularity, rows = ZipfMandelbrot(1.05), 50_000
    found = rows_for_hits(popularity, rows, 0.8)
    assert lru_miss_share(popularity, rows, found) <= 0.2
    assert lru_miss_share(popularity, rows, found - 1) > 0.2
    assert rows_for_hits(popularity, rows, 0) == 0
    assert rows_for_hits(popularity, rows, 1) == rows


def test_miss_curve_falls() -> None:
    """Larger caches miss less, from one row to all."""
    curve = miss_curve(ZipfMandelbrot(1.05), 50_000, 20)
    shares = [share for _, share in curve]
    assert (curve[0][0], curve[-1]) == (1, (50_000, 0.0))
    assert shares == sorted(shares, reverse=True)


@needs_data
def test_simulated_caches() -> None:
    """Misses of LRU caches are those that another simulation found."""
    for row, sizes in simulated():
        if row["quantity"] not in ("lru_hit(Che)", "lru_cold_misses"):
            continue
        popularity = parse_popularity(f"zipf-mandelbrot({sizes['s']},{sizes['q']})")
        rows, cached = int(sizes["H"]), float(sizes["C"])
        expected = float(row["simulated"])
        if row["quantity"] == "lru_cold_misses":
            found = cold_misses(popularity, rows, cached, float(row["n"]))
            assert found == pytest.approx(expected, rel=0.015), row
        else:
            share = lru_miss_share(popularity, rows, cached)
            assert share == pytest.approx(1 - expected, rel=0.015), row


@needs_data
def test_simulated_batches() -> None:
    """So is what caches do that are filled by batches, or look ahead."""
    bags: dict[str, str] = {}
    checked = 0
    for row, sizes in simulated():
        kind = row["quantity"]
        bags = sizes if kind == "unique_per_batch_distinct_bags" else bags
        if kind not in _OF_BATCHES:
            continue
        pooling = int(bags["L"])
        lookups = int(bags["B"]) * pooling
        popularity = Distinct(parse_popularity(f"zipf({bags['s']})"))
        curve = row_curve(popularity, int(bags["H"]), pooling)
        ahead = look_ahead(curve, lookups, float(sizes.get("Lw", 8)))
        filled = batch_fill(curve, float(sizes.get("C", 0)), lookups)
        found = (filled.fetched, ahead.fetched, ahead.resident)[_OF_BATCHES.index(kind)]
        assert found == pytest.approx(float(row["simulated"]), rel=0.015), row
        checked += 1
    assert checked > 0


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("rows", "size"), [(300, 100), (2000, 500), (20_000, 4000)])
def test_batches_that_look_ahead(text: str, rows: int, size: int) -> None:
    """Rows that the next batch wants, that are hit once, and the others: as drawn."""
    batches = 200_000 // size
    drawn_rows = drawn(parse_popularity(text), rows, size * (batches + 1), seed=3)
    counts = [
        np.bincount(batch, minlength=rows)
        for batch in np.array(drawn_rows).reshape(batches + 1, size)
    ]
    found = look_ahead(row_curve(parse_popularity(text), rows), size, 8)
    wanted = once = later = 0
    for batch, following in itertools.pairwise(counts):
        wanted += int(((batch > 0) & (following > 0)).sum())
        once += int(((batch == 1) & (following == 0)).sum())
        later += int(((batch > 1) & (following == 0)).sum())

    said = (found.next_batch, found.once, found.later)
    for one, seen in zip(said, (wanted, once, later), strict=True):
        spread = 4 * math.sqrt(seen + 1) / batches
        assert one == pytest.approx(seen / batches, rel=0.01, abs=spread)


@given(
    text=st.sampled_from(TEXTS),
    rows=st.integers(1, 100_000),
    lookups=st.floats(0.0, 1e6),
    window=st.integers(0, 50),
)
def test_rows_of_a_batch_are_of_one_kind(
    text: str, rows: int, lookups: float, window: int
) -> None:
    """The three kinds of rows add up to those that are touched; none is negative."""
    curve = row_curve(parse_popularity(text), rows)
    found = look_ahead(curve, lookups, window)
    kinds = (found.next_batch, found.once, found.later)
    further = look_ahead(curve, lookups, window + 1)

    assert min(kinds) >= 0
    assert sum(kinds) == pytest.approx(curve.touched(lookups), rel=1e-9)
    assert further.fetched <= found.fetched + 1e-9 * rows
    assert further.resident >= found.resident - 1e-9 * rows


_OF_BATCHES = ("batch_lru_misses", "lookahead_fetch/batch", "lookahead_occupancy")


def simulated() -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield rows of another simulation, and the sizes that each names."""
    text = (DATA / "locality" / "validation.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        yield row, dict(re.findall(r"(\w+)=([\d.]+)", row["config"]))
