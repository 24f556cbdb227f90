"""`perfc place --lookahead`: tables on servers, behind a cache of rows on trainers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.tools.command import Command

from perfc.costmodels.locality import CachedTable, parse_popularity

MODEL = "dlrm-ddp:embedding=batched,tables=3,rows=100000"
PLACE = (
    *("place", MODEL, "--tiers", "remote", "--target", "p3.16xlarge"),
    *("--batch", "512", "--popularity", "zipf(1.05)"),
)
RANKS = ("--ranks", "16")


def _placed(command: Command, *words: str) -> dict[str, Any]:
    outcome = command(*PLACE, *words, "--format", "json", "-q")
    assert 0 == outcome.code, outcome.error
    found: dict[str, Any] = outcome.report
    return found


def test_classes_of_rows(command: Command) -> None:
    """They are those of the formula, and those that are synchronised add up."""
    found = _placed(command, *RANKS, "--lookahead", "20", "--cache-rows", "1000000")
    table = CachedTable.of(parse_popularity("zipf(1.05)"), 100_000, 16 * 512 * 10, 512)
    expected = table.ahead(20).to_dict()

    assert "perfc.place/1" == found["schema"]
    assert 20 == found["window"]
    for entry in found["tables"]:
        rows = entry["lookahead"]
        assert expected == pytest.approx(rows)
        assert math.isclose(
            rows["touched"],
            rows["wanted_next"] + rows["once"] + rows["others"],
            rel_tol=1e-9,
        )
        assert "remote" == entry["tier"]
        assert entry["lookups"] == pytest.approx(entry["hits"] + entry["reads"])
    names, listed = ([t["name"] for t in found[k]] for k in ("tables", "lookahead"))
    assert names == listed


def test_plans_that_are_compared(command: Command) -> None:
    """One a policy, ranked; the cache that knows what comes beats none."""
    found = _placed(command, *RANKS, "--lookahead", "20", "--cache-rows", "1000000")
    times = {plan["name"]: plan["time_us"] for plan in found["plans"]}

    assert {"lookahead", "lru", "none"} == set(times)
    assert times["lookahead"] < times["none"]
    assert sorted(times.values()) == [plan["time_us"] for plan in found["plans"]]


def test_a_window_of_none_is_no_cache(command: Command) -> None:
    """With no batch ahead both plans are the same step."""
    words = ("--lookahead", "0", "--cache-rows", "10", "--compare", "none")
    first, second = _placed(command, *RANKS, *words)["plans"]

    assert first["time_us"] == second["time_us"]


def test_a_cache_that_is_too_small(command: Command) -> None:
    """The window shrinks until the rows of all tables fit, and that is said."""
    found = _placed(command, "--lookahead", "200", "--cache-rows", "50000")
    resident = sum(rows["resident"] for rows in found["lookahead"])

    assert found["window"] < 200
    assert resident <= 50_000
    assert "window-shrunk" in {remark["code"] for remark in found["diagnostics"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lookahead", "3"), "Missing option '--cache-rows'"),
        (("--lookahead", "3", "--cache-rows", "0"), "cache-rows"),
        (("--cache-rows", "5"), "--cache-rows is of a training step behind a cache"),
        (
            ("--lookahead", "3", "--cache-rows", "5", "--cache", "1GB"),
            "--cache is of queries",
        ),
        (
            ("--lookahead", "3", "--cache-rows", "5", "--tiers", "dram"),
            "lie on servers (--tiers remote)",
        ),
        (
            ("--lookahead", "3", "--cache-rows", "5", "--compare", "mru"),
            "expected lookahead, lru, none",
        ),
    ],
)
def test_refuses(command: Command, words: tuple[str, ...], message: str) -> None:
    """Each is one line of usage."""
    outcome = command(*PLACE, *words)

    assert 2 == outcome.code
    assert message in outcome.error


def test_a_target_without_a_network(command: Command) -> None:
    """Nobody says how fast rows travel."""
    words = ("place", MODEL, "--batch", "64", "--target", "v100", "--lookahead", "3")
    outcome = command(*words, "--cache-rows", "5", "-q")

    assert "v100-sxm2-16g has no network" in outcome.error


@pytest.mark.parametrize("form", ["table", "csv", "md", "html"])
def test_formats(command: Command, form: str) -> None:
    """Each has every plan."""
    words = ("--lookahead", "3", "--cache-rows", "100000", "--format", form, "-q")
    outcome = command(*PLACE, *words)

    assert 0 == outcome.code
    assert all(name in outcome.out for name in ("lookahead", "lru", "none"))
