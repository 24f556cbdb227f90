"""Money and carbon as metrics of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import WORKLOAD, Command

import perfc
from perfc.costmodels import load_target
from perfc.ir import UsageError
from perfc.tools.sweeping import sweep

USD, CO2E = "usd_per_million_samples", "gco2e_per_million_samples"
BATCHES = [64 * n for n in range(1, 13)]
"""As many as are priced together."""

SWEEP = ("sweep", WORKLOAD, "--executor", "local:1", "-q", "--format", "json")


def rows(command: Command, *more: str) -> list[dict[str, Any]]:
    """Return the rows of a sweep."""
    outcome = command(*SWEEP, *more)
    assert (0, "") == (outcome.code, outcome.err)
    found: list[dict[str, Any]] = outcome.report["rows"]
    return found


def test_rows_cost_what_reports_do() -> None:
    """Few rows or many, priced together or not: they are those of analyses."""
    asked: dict[str, Any] = {"metric": [USD, CO2E], "dtype": "fp16", "carbon": 400}
    found = sweep(WORKLOAD, ["h100", "t4"], {"batch": BATCHES}, **asked).rows

    assert 2 * len(BATCHES) == len(found)
    for row in found:
        of_one: dict[str, Any] = {"dtype": "fp16", "carbon": 400}
        of_one["batch"] = row["batch"]
        summary = perfc.analyze(WORKLOAD, row["target"], **of_one).summary
        assert summary[USD] == pytest.approx(row[USD], rel=1e-9)
        assert (summary[CO2E] is None) == (row["target"] == "t4")
        assert summary[CO2E] == (row[CO2E] and pytest.approx(row[CO2E], rel=1e-9))


def test_a_price_varies(command: Command) -> None:
    """The price of the target is a field that may vary; money follows it exactly."""
    prices = ",".join(map(str, range(1, 13)))
    vary = ("--vary", f"price.usd_per_hour={prices}")
    found = rows(command, *vary, "--target", "a100", "--batch", "64")

    assert {found[0]["time_us"]} == {row["time_us"] for row in found}
    assert [row["price.usd_per_hour"] * found[0][USD] for row in found] == (
        pytest.approx([row[USD] for row in found], rel=1e-12)
    )


def test_a_price_sheet_has_each_its_own(command: Command, tmp_path: Path) -> None:
    """Targets that it does not have keep the price of their own sheet."""
    path = tmp_path / "prices.toml"
    path.write_text('[h100]\nusd_per_hour = 1\nsource = "x"\ndate = "2026-10"')
    asked = ("--vary", "batch=64", "--target", "h100", "--target", "t4")
    plain, priced = (
        {row["target"]: row for row in rows(command, *asked, *more)}
        for more in ((), ("--price", str(path)))
    )

    own = load_target("h100").usd_per_hour
    h100 = "h100-sxm-80g"
    assert own is not None
    assert plain["t4"] == priced["t4"]
    assert plain[h100][USD] == pytest.approx(own * priced[h100][USD], rel=1e-12)


def test_the_front_of_time_and_money(command: Command) -> None:
    """No row of it is slower and dearer than another."""
    asked = ("--vary", "batch=64:4096:x2", "--target", "h100", "--target", "t4")
    every = rows(command, *asked)
    front = rows(command, *asked, "--pareto", f"time_us,{USD}")

    def beats(one: dict[str, Any], other: dict[str, Any]) -> bool:
        pairs = [(one[key], other[key]) for key in ("time_us", USD)]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    assert front == [
        row for row in every if not any(beats(other, row) for other in every)
    ]
    assert 1 < len(front)


def test_a_target_without_a_price_has_none(command: Command) -> None:
    """The metric is null there, few rows or many."""
    batches = ",".join(map(str, BATCHES))
    for text in ("64", batches):
        found = rows(command, "--vary", f"batch={text}", "--target", "rtx-4090")
        assert {None} == {row[USD] for row in found}


def test_a_loaded_target_keeps_its_price() -> None:
    """A price for it is refused, not dropped."""
    with pytest.raises(UsageError, match="t4 is loaded already: give its name or path"):
        sweep(WORKLOAD, load_target("t4"), {"batch": [64]}, price=3)
