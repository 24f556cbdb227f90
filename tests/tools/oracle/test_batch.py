"""`Oracle.batch`: the numbers that as many questions would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tools.oracle.test_oracle import CLOSE, MODELS, nodes_of, oracle_of

from perfc import Oracle, PerfcError, edits

_SETTINGS = {
    "batch": st.sampled_from([8, 64, 96]),
    "gpu.memory_gb_per_s": st.sampled_from([700.0, 1500.5]),
    "host.speed": st.sampled_from([0.5, 1.7, 3.0]),
    "runtime.launch_latency_us": st.sampled_from([1.0, 7.5]),
    "runtime.stream_gap_us": st.sampled_from([0.5, 4.0]),
}


def asked(columns: dict[str, Any], at: int) -> list[Any]:
    """Return the edits of a configuration: settings, then durations."""
    row = {name: np.asarray(values) for name, values in columns.items()}
    one = {name: v[at].item() if v.ndim else v.item() for name, v in row.items()}
    fields = {
        name: value for name, value in one.items() if "." in name and ":" not in name
    }
    made: list[Any] = [edits.Target(**fields)] if fields else []
    if "dtype" in one:
        made.append(edits.Dtype("*", one["dtype"]))
    dims = {n.removeprefix("dim:"): v for n, v in one.items() if n.startswith("dim:")}
    if dims or "batch" in one:
        made.append(edits.Bind(one.get("batch"), dims))
    for name, value in one.items():
        kind, _, where = name.partition(":")
        if kind in {"us", "factor"}:
            made.append(edits.Duration(where, **{kind: value}))
    return made


@st.composite
def some_columns(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Draw columns of a batch."""
    count = draw(st.integers(1, 6))
    chosen = draw(st.lists(st.sampled_from([*_SETTINGS]), unique=True, max_size=3))
    columns: dict[str, Any] = {}
    for column in chosen:
        size = draw(st.sampled_from([count, 0]))
        values = st.lists(_SETTINGS[column], min_size=count, max_size=count)
        columns[column] = draw(values) if size else draw(_SETTINGS[column])
    where = st.sampled_from([*nodes_of(name), "gemm", "elementwise"])
    kinds = st.sampled_from(["us", "factor"])
    for _ in range(draw(st.integers(1, 4))):
        amounts = st.lists(st.floats(0, 40), min_size=count, max_size=count)
        columns[f"{draw(kinds)}:{draw(where)}"] = draw(amounts)
    return columns


def test_every_kind_of_column() -> None:
    """The columns that random batches are made of are of some model."""
    assert {"dlrm", "training", "capped", "cpu"} == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_batch_is_a_loop(name: str, data: st.DataObject) -> None:
    """Random columns give what as many calls of `ask` give."""
    oracle, columns = oracle_of(name), data.draw(some_columns(name))
    count = max(np.asarray(values).size for values in columns.values())
    try:
        expected = [oracle.ask(*asked(columns, at)) for at in range(count)]
    except PerfcError as error:
        with pytest.raises(type(error)):
            oracle.batch(columns)
        return

    assert expected == pytest.approx(oracle.batch(columns)["time_us"], rel=CLOSE)


def test_many_configurations_of_few_durations() -> None:
    """Where others are replaced by ways, answers are the same."""
    oracle, nodes = oracle_of("training"), nodes_of("training")
    chance = np.random.default_rng(1)
    columns = {f"us:{node}": chance.random(3000) * 90 for node in nodes[5:12]}
    found = oracle.batch(columns)["time_us"]

    for at in (0, 17, 2999):
        assert oracle.ask(*asked(columns, at)) == pytest.approx(found[at], rel=CLOSE)


def test_what_else_is_wanted() -> None:
    """Interval, memory and the device's own time are those of reports."""
    oracle = oracle_of("dlrm")
    columns = {"batch": [8, 96, 8], "us:gemm": [3.0, 5.0, 7.0]}
    names = (
        "time_us_p95",
        "time_us",
        "gpu_active_us",
        "peak_memory_bytes",
        "time_us_p05",
    )
    answers = oracle.batch(columns, want=names)

    assert names == tuple(answers)
    assert () == answers.diagnostics
    for at in range(3):
        summary = oracle.report(*asked(columns, at)).summary
        for wanted in names:
            assert summary[wanted] == pytest.approx(answers[wanted][at], rel=CLOSE)


def test_several_ranks_are_asked_one_by_one() -> None:
    """Where kernels slow each other down, that is said."""
    oracle = Oracle(
        "dlrm-ddp:tables=2,rows=1000", "dgx-a100", batch=64, mode="training", ranks=2
    )
    columns = {"factor:gemm": [1.0, 400.0], "host.speed": [1.0, 2.0]}
    answers = oracle.batch(columns)

    assert ["one-by-one"] == [d.code for d in answers.diagnostics]
    for at in range(2):
        expected = oracle.ask(*asked(columns, at))
        assert expected == pytest.approx(answers["time_us"][at], rel=CLOSE)


def test_a_board_at_its_cap_is_priced_beside_each_host() -> None:
    """A faster host lets a board draw more, which its cap does not let it."""
    oracle = Oracle(
        "gpt2:layers=4",
        "h100-sxm",
        batch=32,
        mode="training",
        dtype="bf16",
        overrides={"gpu.power_cap_watts": "500"},
    )
    columns = {"host.speed": [0.02, 1.0, 20.0]}
    found = oracle.batch(columns)["time_us"]

    for at in range(3):
        assert oracle.ask(*asked(columns, at)) == pytest.approx(found[at], rel=CLOSE)


def test_words() -> None:
    """A column of words sets the type."""
    oracle = oracle_of("dlrm")
    columns = {"dtype": ["fp32", "bf16", "fp16", "bf16"], "batch": [8, 8, 96, 96]}
    found = oracle.batch(columns)["time_us"]

    for at in range(4):
        assert oracle.ask(*asked(columns, at)) == pytest.approx(found[at], rel=CLOSE)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "expected a mapping from columns"),
        ({"bach": [1]}, "did you mean batch"),
        ({"gpu.memory": [1]}, "did you mean gpu.memory"),
        (
            {"batch": [1, 2], "us:gemm": [1.0, 2.0, 3.0]},
            "has 2 values, column 'us:gemm' has 3",
        ),
        ({"batch": [[1], [2]]}, "one number"),
        ({"batch": [1.5]}, "expected a whole number"),
        ({"batch": [0]}, "expected at least 1"),
        ({"dim:sequence": [4]}, "sequence"),
        ({"us:gemm": [1.0, -1.0]}, "configuration 1 is -1"),
        ({"us:gemm": [float("nan")]}, "finite numbers"),
        ({"us:gemm": ["a"]}, "expected numbers"),
        ({"us:no_node": [1.0]}, "no node, module or kernel"),
        ({"dtype": ["fp12"]}, "is none of"),
        ({"host.speed": [1.0, 0.0]}, "host.speed"),
        ({"us:": [1.0]}, "is none of a batch"),
        ({"batch": [[1], [2, 3]]}, "one number"),
    ],
)
def test_columns_that_mean_nothing(columns: dict[str, Any], said: str) -> None:
    """One line says which column, what was expected and what was found."""
    with pytest.raises(PerfcError, match=said) as caught:
        oracle_of("dlrm").batch(columns)

    assert "\n" not in str(caught.value)


def test_what_is_wanted_is_known() -> None:
    """A name of nothing that a batch answers is refused."""
    with pytest.raises(PerfcError, match="did you mean time_us"):
        oracle_of("dlrm").batch({"batch": [8]}, want="time_ms")
