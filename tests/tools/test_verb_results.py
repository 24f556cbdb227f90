"""Results of verbs have one form: each is asked for every member."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import attrs
import pytest
from tests.html_page import HtmlPage
from tests.tools import results

import perfc
from perfc.ir import Diagnostic
from perfc.tools.reports import (
    RESULT_FORMATS,
    PricedPlan,
    VerbResult,
    format_result,
)

_MOST = 500
"""Characters that a `repr` may have."""

_UNITS = re.compile(
    r"(_us|_us_p05|_us_p95|_j|_bytes|_per_s|_million_samples)$|^(watts|usd|saving)$"
)
"""How the keys of floats end."""

_SCHEMAS = {
    "report": "perfc.report/1",
    "sharding": "perfc.shard/1",
    "placement": "perfc.place/1",
    "comparison": "perfc.parallel/1",
    "madmax": "perfc.parallel/1",
    "quantization": "perfc.quantize/1",
    "deduplication": "perfc.dedup/1",
    "sweep": "perfc.sweep/1",
}
_MADE = {name: getattr(results, name) for name in _SCHEMAS}


@pytest.fixture(scope="module", params=_SCHEMAS)
def named(request: pytest.FixtureRequest) -> tuple[str, VerbResult]:
    """Return a result, and how it is made."""
    return request.param, _MADE[request.param]()


@pytest.fixture
def result(named: tuple[str, VerbResult]) -> VerbResult:
    """Return the result of one verb."""
    return named[1]


CHANCE = "probability_best"


def test_rows_are_a_table(result: VerbResult) -> None:
    """Each row has the keys of the first, and a key says its unit."""
    cells = [cell for row in result.rows for cell in row.items()]
    floats = {key for key, value in cells if isinstance(value, float)}

    assert 1 == len({tuple(row) for row in result.rows})
    assert set() == {key for key in floats if not _UNITS.search(key)} - {CHANCE}


def test_plans_are_ranked_as_rows_are(named: tuple[str, VerbResult]) -> None:
    """Reports and sweeps rank none. Others have a plan a row; one priced is best."""
    name, result = named
    rows = () if name in {"report", "sweep"} else result.rows
    fields = [field.name for field in attrs.fields(PricedPlan)]
    listed = result.to_dict().get("plans", [])

    assert [row.get("strategy", row.get("name")) for row in rows] == [
        plan.name for plan in result.plans
    ]
    times = [row["step_us" if "step_us" in row else "time_us"] for row in rows]
    assert times == [plan.time_us for plan in result.plans]
    chances = [plan.probability_best for plan in result.plans]
    known = [chance for chance in chances if chance is not None]
    assert not known or sum(known) == pytest.approx(1.0)
    assert bool(known) == (name not in {"report", "madmax", "sweep"})
    assert [plan.to_dict() for plan in result.plans] == [
        {key: plan[key] for key in fields} for plan in listed
    ]


@pytest.mark.parametrize("form", RESULT_FORMATS)
def test_every_format(named: tuple[str, VerbResult], form: str) -> None:
    """A result has them all, and names its first plan in each."""
    _, result = named
    text = format_result(result, form, "title")

    assert all(plan.name in text for plan in result.plans[:1])
    assert text.endswith("\n")
    if form == "html":
        assert HtmlPage.of(text).is_alone


def test_a_plan_has_what_its_report_has() -> None:
    """The interval, the joules and the memory of a plan are those of its report."""
    sharding = results.sharding()
    (best, other, *_), report = sharding.plans, sharding.best.report

    assert report is not None
    assert report.interval_us == (best.time_us_p05, best.time_us_p95)
    assert report.summary["energy_j"] == best.energy_j
    assert report.summary["peak_memory_bytes"] == best.peak_memory_bytes
    assert PricedPlan(name=other.name, time_us=other.time_us) == other


def test_diagnostics_are_told_once(result: VerbResult) -> None:
    """They are values, and stand in the document as all verbs write them."""
    remarks = result.diagnostics
    entries = [
        {"code": d.code, "level": d.level.value, "message": d.message, "where": d.where}
        for d in remarks
    ]

    assert all(isinstance(remark, Diagnostic) for remark in remarks)
    assert len(set(remarks)) == len(remarks)
    assert entries == result.to_dict()["diagnostics"]


def test_the_document(named: tuple[str, VerbResult], tmp_path: Path) -> None:
    """It is plain data with sorted keys, says the same twice, and has no `nan`."""
    name, result = named
    document, path = result.to_dict(), tmp_path / "result.json"
    text = result.to_json(path)

    assert _SCHEMAS[name] == result.schema == document["schema"]
    assert text == json.dumps(document, indent=1) + "\n"
    assert document == json.loads(text, parse_constant=pytest.fail)
    assert text == path.read_text("utf-8") == _MADE[name]().to_json()


def test_a_document_is_written_whole_or_not_at_all(
    result: VerbResult, tmp_path: Path
) -> None:
    """Where it cannot be, one line says so, and nothing is left behind."""
    with pytest.raises(perfc.PerfcError, match=r"result\.json"):
        result.to_json(tmp_path / "missing" / "result.json")

    assert [] == [*tmp_path.iterdir()]


def test_it_is_shown(result: VerbResult) -> None:
    """As a table, and in one line."""
    text, line = str(result), repr(result)

    assert 1 < len(text.splitlines())
    assert text.endswith("\n")
    assert len(line) < _MOST
    assert 1 == len(line.splitlines())


def test_it_is_frozen_data(result: VerbResult) -> None:
    """It cannot be changed, and says the same out of a pickle."""
    again: VerbResult = pickle.loads(pickle.dumps(result))  # noqa: S301 - our own

    assert result.to_json() == again.to_json()
    assert str(result) == str(again)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        result.schema = "other"  # type: ignore[misc] # which is what is asked
