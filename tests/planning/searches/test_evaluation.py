"""How well a cost chooses plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import PerfcError
from perfc.passes import Placement, World
from perfc.passes.embeddings import COLUMN_WISE, ROW_WISE, TABLE_WISE
from perfc.planning import (
    PerfRules,
    Topology,
    TorchRecCost,
    evaluate,
    plan_times,
    read_times,
    sharder_plans,
)
from perfc.planning.plans import Table
from perfc.planning.searches import Times, plan_loads

WORLD = World(ranks=2, per_node=2)
COST = TorchRecCost(rules=PerfRules(topology=Topology(world=WORLD)))
TABLES = [Table(name=f"t{at}", rows=100 + at, dim=32, pooling=at) for at in range(4)]

TIMES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.dictionaries(
        st.sampled_from("pqrst"), st.floats(1e-6, 1e3), min_size=1, max_size=5
    ),
    min_size=1,
)


def test_metrics() -> None:
    """One of two tasks is hit; the other's choice takes half as long again."""
    measured = {"a": {"p": 2.0, "q": 3.0, "r": 5.0}, "b": {"p": 1.0, "q": 4.0}}
    guessed = {"a": {"p": 9.0, "q": 8.0, "r": 10.0}, "b": {"p": 1.0, "q": 2.0}}
    found = evaluate(guessed, measured)
    assert (0.5, 0.25, 0.5) == (found.hit_rate, found.regret_mean, found.regret_max)
    assert pytest.approx(0.45) == found.regret_p90
    assert pytest.approx((1 / 3 + 1) / 2) == found.tau_mean
    assert ["q", "p"] == [choice.chosen for choice in found.choices]


def test_ties_share_a_hit() -> None:
    """A cost that ties two plans is right by half if one of them is best."""
    found = evaluate({"a": {"p": 1.0, "q": 1.0}}, {"a": {"p": 1.0, "q": 3.0}})
    assert (0.5, 1.0, None) == (found.hit_rate, found.regret_mean, found.tau_mean)


@given(TIMES)
def test_reference_is_its_own_best_judge(times: Times) -> None:
    """What it is judged by makes no error."""
    found = evaluate(times, times)
    assert (1.0, 0.0, 0.0) == (found.hit_rate, found.regret_mean, found.regret_max)
    assert found.tau_mean is None or found.tau_mean == pytest.approx(1.0)


@given(TIMES, st.floats(0.001, 1000.0))
def test_units_do_not_matter(times: Times, factor: float) -> None:
    """Times in another unit give the same regret."""
    ranks = {t: {p: float(len(p + t)) for p in plans} for t, plans in times.items()}
    scaled = {
        task: {plan: factor * each for plan, each in plans.items()}
        for task, plans in times.items()
    }
    one, other = evaluate(ranks, times), evaluate(ranks, scaled)
    assert pytest.approx(one.regret_max, rel=1e-6, abs=1e-9) == other.regret_max
    assert one.regret_mean >= 0


def test_document_and_table() -> None:
    """JSON has fractions and each choice, the table a line of figures."""
    found = evaluate({"é": {"p": 1.0, "q": 2.0}}, {"é": {"p": 3.0, "q": 2.0}})
    document = json.loads(found.to_json())
    assert "perfc.sharding-evaluation/1" == document["schema"]
    assert (0.5, -1.0) == (document["regret_max"], document["kendall_tau"])
    assert {"task": "é", "plans": 2, "chosen": "p", "best": "q"}.items() <= (
        document["choices"][0].items()
    )
    assert [
        "tasks  top-1  regret mean    p90    max  Kendall tau",
        "    1     0%        50.0%  50.0%  50.0%        -1.00",
    ] == found.to_table().splitlines()


def test_measured_rows(tmp_path: Path) -> None:
    """CSV and Parquet hold a time for each task and plan, in microseconds."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {"task": ["a", "a"], "plan": ["p", "q"], "time_us": [5.0, 7.0]}
    table = pyarrow.table(rows).replace_schema_metadata(
        {"perfc.schema": "perfc.shardings/1"}
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    csv = tmp_path / "t.csv"
    csv.write_text("task,plan,time_us\na,p,5\na,q,7\n", encoding="utf-8")
    expected = {"a": {"p": pytest.approx(5e-6), "q": pytest.approx(7e-6)}}
    assert expected == read_times(csv)
    assert expected == read_times(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "task"),
        ("task,plan\na,p\n", "time_us"),
        ("task,plan,time_us\na,p,fast\n", "time_us"),
        ("task,plan,time_us\na,p,1\na,p,2\n", "has plan 'p' twice"),
    ],
)
def test_bad_rows(tmp_path: Path, text: str, problem: str) -> None:
    """A file that is none is refused by name."""
    path = tmp_path / "times.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PerfcError, match=problem) as caught:
        read_times(path)
    assert "times.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("guessed", "measured", "problem"),
    [
        ({}, {}, "no tasks"),
        ({}, {"a": {}}, "task 'a' has no plans"),
        ({}, {"a": {"p": 1.0}}, "plan 'p' is measured, but not priced"),
        ({"a": {"p": 1.0}}, {"a": {"p": 0.0}}, "above 0, found 0.0"),
        ({"a": {"p": float("nan")}}, {"a": {"p": 1.0}}, "found nan"),
        ({"a": {"p": 1.0}}, {"a": {"p": float("inf")}}, "found inf"),
    ],
)
def test_bad_times(guessed: Times, measured: Times, problem: str) -> None:
    """Times that cannot be are refused."""
    with pytest.raises(PerfcError, match=problem):
        evaluate(guessed, measured)


def test_plan_times_are_those_of_loads() -> None:
    """A plan's time is that of the loads that its shards add up to."""
    plans = sharder_plans(TABLES, WORLD)
    times = plan_times(COST, TABLES, plans, WORLD)
    for name, plan in plans.items():
        loads, memory = plan_loads(COST, TABLES, plan, WORLD)
        assert ((2, 5), (2,)) == (loads.shape, memory.shape)
        assert pytest.approx(loads.sum(axis=1).max()) == times[name]


def test_bad_plans() -> None:
    """Plans of other tables or ranks are refused."""
    good = {table.name: Placement(ROW_WISE) for table in TABLES}
    cases = {
        "says nothing of t3": {k: v for k, v in good.items() if k != "t3"},
        "places x, which no table": {**good, "x": Placement(ROW_WISE)},
        "expected one rank of 0 to 1": {**good, "t0": Placement(TABLE_WISE, (2,))},
        "expected one rank": {**good, "t0": Placement(TABLE_WISE, (0, 1))},
        "expected no places": {**good, "t0": Placement(ROW_WISE, (0,))},
        "one of them twice": {**good, "t0": Placement(COLUMN_WISE, (1, 1))},
        "'whole' is none of": {**good, "t0": Placement("whole", (1,))},
    }
    for problem, plan in cases.items():
        with pytest.raises(PerfcError, match=problem):
            plan_loads(COST, TABLES, plan, WORLD)
    with pytest.raises(PerfcError, match="no plans to price"):
        plan_times(COST, TABLES, {}, WORLD)
    with pytest.raises(PerfcError, match="no embedding tables"):
        plan_loads(COST, [], {}, WORLD)
    with pytest.raises(PerfcError, match="2 tables are named 't0'"):
        plan_loads(COST, [TABLES[0], TABLES[0]], good, WORLD)
