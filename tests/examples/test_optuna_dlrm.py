"""Optuna over a DLRM's step: the best within the limit, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import optuna
import pytest
from tests.examples.modules import example

from perfc import edits

tuning = example("autotune/optuna_dlrm")
SPACE = tuning.Space(
    batches=(2048, 8192),
    dtypes=("fp32", "bf16"),
    plans=("column-wise", "row-wise"),
    tiers=("hbm", "uvm"),
)
LIMIT_BYTES = 7 * tuning.GIB


@pytest.fixture(scope="module")
def oracle() -> Any:
    """The oracle of the step."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return tuning.oracle_of("dgx-a100")


def test_the_best_within_the_limit_is_found(oracle: Any) -> None:
    """That of all configurations; without the limit another one is the best."""
    rates: dict[tuple[Any, ...], tuple[float, int]] = {}
    for batch, dtype, plan, tier in itertools.product(
        SPACE.batches, SPACE.dtypes, SPACE.plans, SPACE.tiers
    ):
        asked: list[Any] = [edits.Bind(batch=batch)]
        asked += [edits.Dtype("*", dtype)] if dtype != "fp32" else []
        asked += [edits.Shard("*", plan)]
        asked += [edits.Place("*", tier)] if tier != "hbm" else []
        report = oracle.report(*asked)
        rate = tuning.RANKS * batch / report.time_us * 1e6
        rates[batch, dtype, plan, tier] = rate, report.memory_use.peak_bytes
    able = {at: rate for at, (rate, peak) in rates.items() if peak <= LIMIT_BYTES}
    study = tuning.tune(oracle, LIMIT_BYTES, 30, SPACE)

    assert max(able, key=able.__getitem__) == tuple(study.best_params.values())
    assert pytest.approx(max(able.values()), rel=1e-9) == study.best_value
    assert max(rate for rate, _ in rates.values()) > study.best_value


def test_what_cannot_be_is_pruned_with_the_reason(oracle: Any) -> None:
    """Tables in host memory, a copy of them on each GPU: perfc says why not."""
    space = tuning.Space((2048,), ("fp32",), ("data-parallel",), ("uvm",))
    study = tuning.tune(oracle, LIMIT_BYTES, 3, space)

    assert {optuna.trial.TrialState.PRUNED} == {trial.state for trial in study.trials}
    assert all("host memory" in t.user_attrs["refused"] for t in study.trials)
    assert 0 == tuning.measuring_s(study)


def test_a_configuration_is_measured_once(oracle: Any) -> None:
    """However many trials it had: its start, and its steps at the predicted time."""
    space = tuning.Space((2048,), ("bf16",), ("row-wise",), ("hbm",))
    study = tuning.tune(oracle, LIMIT_BYTES, 4, space)
    step_s = study.best_trial.user_attrs["time_us"] * 1e-6

    expected = tuning.START_S + (tuning.WARM_UP + tuning.TIMED) * step_s

    assert pytest.approx(expected) == tuning.measuring_s(study)


def test_a_share_of_the_rows_is_chosen_where_there_is_a_cache(oracle: Any) -> None:
    """Of other placements it is no parameter."""
    space = tuning.Space((2048,), ("fp32",), ("row-wise",), ("uvm-caching", "hbm"))
    study = tuning.tune(oracle, 3 * tuning.GIB, 12, space)

    assert {True} == {
        ("cache" in t.params) == (t.params["tier"] == "uvm-caching")
        for t in study.trials
    }
    assert "uvm-caching" == study.best_params["tier"]


@pytest.mark.parametrize(
    ("gib", "said"), [("8", "samples/s"), ("0.001", "no configuration is within")]
)
def test_the_script(
    gib: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It prints the best, or that there is none."""
    argv = ["optuna_dlrm.py", "--trials", "3", "--memory-gib", gib]
    monkeypatch.setattr("sys.argv", argv)
    tuning.main()

    assert said in capsys.readouterr().out
