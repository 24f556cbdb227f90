"""The pass `lookahead-cache`: tables on servers, rows that are there in time."""

from __future__ import annotations

import functools

import pytest

import perfc
from perfc.costmodels.locality import LookAheadRows
from perfc.ir import PerfcError
from perfc.passes.embeddings import cached_tables

MODEL = "dlrm-ddp:tables=4,rows=1000000,embedding=batched,popularity=zipf(1.05)"
POLICIES = ("none", "lru", "lookahead")
_LATENCY_US = 50.0
"""Most that launches and gaps of the tasks for rows take."""


@functools.cache
def _report(options: str = "", ranks: int = 16) -> perfc.Report:
    return perfc.analyze(
        MODEL,
        "p3.16xlarge",
        mode="training",
        batch=1024,
        ranks=ranks,
        passes=[f"lookahead-cache{{{options}}}"] if options else [],
    )


def _time_us(options: str = "", ranks: int = 16) -> float:
    return _report(options, ranks).time_us


def _taken_us(options: str, name: str) -> float:
    nodes = [n for n in _report(options).nodes if n["id"] == f"lookahead-cache.{name}"]
    return float(nodes[0]["duration_us"]) if nodes else 0.0


def test_no_window_is_no_cache() -> None:
    """The step waits for all rows that it touches, and for their way back."""
    found = _time_us("window=0,rows=1000")
    way = _taken_us("window=0,rows=1000", "fetch")

    assert _time_us("window=9,rows=1000,policy=none") == found
    assert _time_us() + 2 * way == pytest.approx(found, abs=_LATENCY_US)


@pytest.mark.parametrize("window", [1, 20, 200])
@pytest.mark.parametrize("oracle_us", [0, 90_000])
def test_the_longest_decides(window: int, oracle_us: int) -> None:
    """Compute, the way of rows, and the oracle: none is longer than the step."""
    options = f"window={window},rows=9000000,oracle-us={oracle_us}"
    found = _time_us(options)
    way = sum(_taken_us(options, name) for name in ("fetch", "write_back"))
    bounds = (_time_us(), way, float(oracle_us))

    assert max(bounds) <= found * (1 + 1e-9)
    assert found <= max(bounds[1:]) + _time_us() + 20_000


@pytest.mark.parametrize("rows", [100_000, 1_000_000])
def test_foresight_is_fastest(rows: int) -> None:
    """Then comes a cache of the last rows, then none."""
    none, lru, ahead = (
        _time_us(f"window=200,rows={rows},policy={policy}") for policy in POLICIES
    )

    assert ahead < lru < none


def test_more_rows_never_slow() -> None:
    """A larger cache has a longer window, and fetches less."""
    times = [_time_us(f"window=500,rows={n}") for n in (10**4, 10**5, 10**6, 10**7)]

    assert sorted(times, reverse=True) == times


@pytest.mark.parametrize("policy", POLICIES)
def test_a_network_without_limits(policy: str) -> None:
    """One trainer behind an endless NIC is as fast with every cache as without."""
    options = f"window=20,rows=1000000,policy={policy},nic-gbit-per-s=1e12"

    found = _time_us(options, ranks=1)
    assert _time_us(ranks=1) == pytest.approx(found, abs=_LATENCY_US)


def test_the_window_is_shrunk() -> None:
    """Where the cache is too small; it says so."""
    codes = {d.code: d.message for d in _report("window=200,rows=50000").diagnostics}
    large = {d.code for d in _report("window=2,rows=9000000").diagnostics}

    assert "50,000 rows has room for the next" in codes["window-shrunk"]
    assert "window-shrunk" not in large


def test_rows_that_are_synchronised() -> None:
    """Two collectives over all trainers, of the bytes of their rows."""
    options = "window=20,rows=9000000"
    report = _report(options)
    (next_,) = [n for n in report.nodes if n["id"] == "lookahead-cache.sync_next"]
    (others,) = [n for n in report.nodes if n["id"] == "lookahead-cache.sync_others"]
    tables = cached_tables(report.analysis.program)
    rows: list[LookAheadRows] = [table.ahead(20) for table in tables]
    row_bytes = 4 * 128

    assert 4 == len(tables)
    assert {16 * 10 * 1024.0} == {table.lookups for table in tables}
    for node, name in ((next_, "wanted_next"), (others, "others")):
        expected = row_bytes * sum(getattr(each, name) for each in rows)
        assert 2 * expected == pytest.approx(node["bytes"], rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("window=2,rows=0", "expected a cache of rows, 1 or more"),
        ("window=-1,rows=5", "expected batches ahead, 0 or more"),
        ("window=2,rows=5,servers=0", "servers=0"),
        ("window=2,rows=5,policy=lfu", "expected lookahead, lru, none"),
        ("window=2,rows=5,oracle-us=inf", "expected 0 or more, finite"),
        ("window=2,rows=5,nic-gbit-per-s=-1", "expected 0 or more, finite"),
        ("rows=5", "needs more"),
    ],
)
def test_what_cannot_be(options: str, message: str) -> None:
    """One line says what is wrong."""
    with pytest.raises(PerfcError, match=message):
        perfc.analyze(
            MODEL, "p3.16xlarge", batch=8, passes=[f"lookahead-cache{{{options}}}"]
        )


def test_where_there_is_nothing_to_cache() -> None:
    """A model without tables, and a GPU without a network, are refused."""
    options = "lookahead-cache{window=2,rows=5}"
    with pytest.raises(PerfcError, match="no embedding bags"):
        perfc.analyze("resnet50", "p3.16xlarge", batch=8, passes=[options])
    with pytest.raises(PerfcError, match="has no network: give lookahead-cache"):
        perfc.analyze(MODEL, "rtx-4090", batch=8, passes=[options])
