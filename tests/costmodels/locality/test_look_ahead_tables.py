"""Rows of a cache that looks ahead: formulas against batches that are drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels.locality import (
    CachedTable,
    lru_window,
    parse_popularity,
    window_that_fits,
)

KAGGLE = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""Rows of the tables of Criteo Kaggle (uw-mad-dash/bagpipe, MIT)."""

TEXTS = ("uniform", "zipf(0.8)", "zipf(1.05)", "zipf(1.2)")


def _table(text: str, rows: int, lookups: float) -> CachedTable:
    return CachedTable.of(parse_popularity(text), rows, lookups, 4.0)


@pytest.mark.parametrize(
    ("text", "touched", "fetched", "resident", "wanted"),
    [
        ("zipf(1.05)", 75_114, 11_626, 1.135e6, 24_296),
        ("zipf(1.14)", 53_984, 7_093, 0.722e6, 19_529),
        ("uniform", 166_554, 45_848, 3.70e6, 37_175),
    ],
)
def test_criteo_kaggle(
    text: str, touched: float, fetched: float, resident: float, wanted: float
) -> None:
    """The published tables with batches of 16,384 and a window of 200."""
    found = [_table(text, rows, 16_384).ahead(200) for rows in KAGGLE]

    for name, expected in (
        ("touched", touched),
        ("fetched", fetched),
        ("resident", resident),
        ("wanted_next", wanted),
    ):
        total = math.fsum(getattr(rows, name) for rows in found)
        assert expected == pytest.approx(total, rel=0.002)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("rows", "size", "window"), [(4000, 400, 6), (20_000, 2000, 3)]
)
def test_a_simulation(text: str, rows: int, size: int, window: int) -> None:
    """Batches that are drawn fetch, hold and synchronise as many rows, within 2 %."""
    generator = np.random.default_rng(11)
    popularity = parse_popularity(text)
    exponent = 0.0 if text == "uniform" else float(text[5:-1])
    weights = np.arange(1, rows + 1) ** -exponent
    batches = 400
    drawn = generator.choice(rows, (batches, size), p=weights / weights.sum())
    counts = [np.bincount(batch, minlength=rows) for batch in drawn]
    used = np.array(counts) > 0
    numbers = np.arange(batches)[:, None]
    last = np.maximum.accumulate(np.where(used, numbers, -batches))
    ahead = np.where(used, numbers, 3 * batches)[::-1]
    wanted = np.minimum.accumulate(ahead)[::-1]
    sums, steps = np.zeros(6), 0
    for n in range(window, batches - window - 1):
        now, after = counts[n], used[n + 1]
        sums += (
            used[n].sum(),
            (used[n] & (last[n - 1] < n - window)).sum(),
            (wanted[n + 1] - last[n] <= window).sum(),
            (used[n] & after).sum(),
            ((now == 1) & ~after).sum(),
            ((now > 1) & ~after).sum(),
        )
        steps += 1
    table = CachedTable.of(popularity, rows, size, 4.0)

    found = table.ahead(window).to_dict()
    for (name, mine), simulated in zip(found.items(), sums / steps, strict=True):
        noise = 4 * math.sqrt(simulated + 1) / math.sqrt(steps)
        assert mine == pytest.approx(simulated, rel=0.02, abs=noise), name


_TABLES = st.lists(
    st.builds(_table, st.sampled_from(TEXTS), st.integers(1, 10**6), st.floats(1, 1e5)),
    min_size=1,
    max_size=4,
)


@given(_TABLES, st.integers(0, 300))
def test_classes_add_up(tables: list[CachedTable], window: int) -> None:
    """To the rows that are touched, to 1e-9; none is negative."""
    for table in tables:
        found = table.ahead(window)
        classes = (found.wanted_next, found.once, found.others)

        assert math.fsum(classes) == pytest.approx(found.touched, rel=1e-9)
        assert min(found.to_dict().values()) >= 0


@given(_TABLES)
def test_no_window_is_no_cache(tables: list[CachedTable]) -> None:
    """All that is touched is fetched, and nothing stays."""
    for table in tables:
        found = table.ahead(0)

        assert found.touched == pytest.approx(found.fetched)
        assert 0.0 == found.resident


@given(_TABLES, st.integers(0, 300), st.floats(0, 1e6))
def test_the_window_fits(tables: list[CachedTable], window: int, rows: float) -> None:
    """One batch more would not, unless no more are asked for."""
    found = window_that_fits(tables, window, rows)

    def resident(size: int) -> float:
        return math.fsum(table.ahead(size).resident for table in tables)

    assert found <= window
    assert resident(found) <= rows
    assert found == window or resident(found + 1) > rows


@given(_TABLES, st.floats(1, 1e6))
def test_foresight_never_fetches_more(tables: list[CachedTable], rows: float) -> None:
    """Than a cache of the last rows, of as many rows."""
    held = lru_window(tables, rows)
    ahead = window_that_fits(tables, 10**6, rows)
    missed = 0.0
    if not math.isinf(held):
        missed = math.fsum(table.missed(held) for table in tables)
    touched = math.fsum(table.ahead(0).touched for table in tables)
    fetched = math.fsum(table.ahead(ahead).fetched for table in tables)

    assert missed <= touched * (1 + 1e-9)
    if ahead >= held:
        assert fetched <= missed + 1e-6 * touched
