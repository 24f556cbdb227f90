"""Whole models against published measurements that nothing was fitted to."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import pytest

from perfc.costmodels import load_target

ROWS = (
    Path(__file__).parents[3] / "shared/data/end_to_end/transformers_fp32_seen_gpus.csv"
)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "published"


def test_published_times_of_transformers() -> None:
    """Those marked clean are 5 % off on average, and T4 within 10 % in the mean."""
    if not ROWS.exists():
        pytest.skip(f"{ROWS.name} is not there: it is no part of the repository")
    script = runpy.run_path(str(BENCHMARKS / "transformers_fp32.py"))
    rows = [row for row in script["labels"](ROWS) if row["label_clean"] == "True"]
    errors: list[tuple[str, float]] = []
    for row in rows:
        target = load_target(row["target"])
        ratio = script["predicted_s"](row, target) / script["measured_s"](row)
        errors.append((row["target"], ratio - 1))
    on_t4 = [error for name, error in errors if name == "t4"]

    assert 28 == len(errors)
    assert sum(abs(error) for _, error in errors) / 28 < 0.05
    assert max(abs(error) for _, error in errors) < 0.15
    assert abs(sum(on_t4) / len(on_t4)) < 0.10


def test_published_inference_times() -> None:
    """Of all labels, clean or not: 12 % off on average, none by more than 35 %."""
    if not ROWS.exists():
        pytest.skip(f"{ROWS.name} is not there: it is no part of the repository")
    script = runpy.run_path(str(BENCHMARKS / "transformers_fp32.py"))
    errors = [
        abs(
            script["predicted_s"](row, load_target(row["target"]))
            / script["measured_s"](row)
            - 1
        )
        for row in script["labels"](ROWS)
        if row["mode"] == "inf"
    ]

    assert len(errors) > 30
    assert sum(errors) / len(errors) < 0.12
    assert max(errors) < 0.35


@pytest.mark.parametrize(
    ("host", "mean", "most"), [(None, 0.036, 0.08), ("shared", 0.06, 0.15)]
)
def test_published_iterations_of_dlrm(
    host: str | None, mean: float, most: float
) -> None:
    """Lin et al.'s twelve on V100, by preset, with their host and with another."""
    path = ROWS.with_name("dlrm_lin_v100.csv")
    if not path.exists():
        pytest.skip(f"{path.name} is not there: it is no part of the repository")
    steps = runpy.run_path(str(BENCHMARKS / "lin_steps.py"))
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    errors: list[float] = [
        steps["report"](row, host).time_us / 1e3 / float(row["measured_e2e_ms"]) - 1
        for row in rows
    ]

    assert 12 == len(errors)
    assert sum(map(abs, errors)) / 12 < mean
    assert max(map(abs, errors)) < most


def test_published_steps_of_megatron(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tensor parallelism 4 % off, with the speed of the host alone fitted."""
    path = ROWS.with_name("llm_training_steps.csv")
    if not path.exists():
        pytest.skip(f"{path.name} is not there: it is no part of the repository")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "megatron_steps.py"))
    machine = script["Machine"](speed=0.9)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["id"].startswith("vtrain-single")]
    steps = [script["Step"](row) for row in rows if row["tp"] == "1"]
    errors = [abs(s.predicted_s(machine) / s.published_s - 1) for s in steps]

    assert 242 == len(errors)
    assert sum(errors) / len(errors) < 0.04
