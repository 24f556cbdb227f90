"""Measured rows for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from perfc.ir import AttrValue, Record
from perfc.measurements import TIMINGS, Measurement

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)
AMOUNTS = st.floats(0, 1e12, allow_nan=False)
SIZES = st.one_of(st.integers(0, 2**40), st.booleans(), NAMES, AMOUNTS)
LISTS = st.lists(st.integers(0, 9), max_size=3).map(tuple)
TABLES = st.dictionaries(NAMES, st.integers(0, 9), max_size=2).map(Record)


def _records(values: st.SearchStrategy[AttrValue]) -> st.SearchStrategy[Record]:
    return st.dictionaries(NAMES, values, max_size=4).map(Record)


PARAMS = _records(st.one_of(SIZES, LISTS, st.lists(TABLES, max_size=2).map(tuple)))
MAYBE = st.one_of(st.none(), AMOUNTS)
MEASURED = st.builds(
    Measurement,
    target=NAMES,
    op=NAMES,
    dtype=NAMES,
    params=PARAMS,
    latency_us=AMOUNTS,
    timing=st.sampled_from(TIMINGS),
    source=NAMES,
    kernel=NAMES,
    split=st.sampled_from(("", "fit", "test")),
    p10_us=MAYBE,
    p90_us=MAYBE,
    n=st.one_of(st.none(), st.integers(0, 2**40)),
    sm_clock_mhz=MAYBE,
    throttled=st.one_of(st.none(), st.booleans()),
    host_us=MAYBE,
)


def measured(op: str, dtype: str = "fp32", /, **params: AttrValue) -> Measurement:
    """Return a row of 10 us."""
    return Measurement(
        target="cpu",
        op=op,
        dtype=dtype,
        params=Record(params),
        latency_us=10.0,
        timing="event",
        source="a test",
    )
