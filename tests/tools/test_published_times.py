"""Whole models against published measurements that nothing was fitted to."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import pytest

import perfc
from perfc.costmodels import target_names

ROWS = (
    Path(__file__).parents[3] / "shared/data/end_to_end/transformers_fp32_seen_gpus.csv"
)
WORKLOADS = {
    "bert_large": "bert-large:attention=eager,head=classifier",
    "gpt2_large": "gpt2-large:attention=eager",
    "gpt3_xl": "gpt3-xl:hidden=3072,heads=24,attention=eager",
    "gpt3_27": "gpt3-2.7b:attention=eager",
    "opt_13": "opt-1.3b:attention=eager",
    "switchxl4": "switch-xl-4:capacity=64",
}
"""NeuSight's configurations (arXiv 2407.13853): fp32, attention spelled out."""


def test_published_inference_times() -> None:
    """Predictions are 12 % off on average, none by more than 35 %."""
    if not ROWS.exists():
        pytest.skip(f"{ROWS.name} is not there: it is no part of the repository")
    with ROWS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "inf"]
    known = [row for row in rows if row["target"] in target_names()]
    errors = [abs(_predicted_ms(row) / float(row["measured_ms"]) - 1) for row in known]

    assert len(errors) > 30
    assert sum(errors) / len(errors) < 0.12
    assert max(errors) < 0.35


def _predicted_ms(row: dict[str, str]) -> float:
    workload = f"{WORKLOADS[row['model']]},seq={row['seq']}"
    model = perfc.load(workload, batch=int(row["batch"]))
    return perfc.analyze(model, row["target"]).time_us / 1e3


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
    script = Path(__file__).parents[2] / "benchmarks" / "published" / "lin_steps.py"
    steps = runpy.run_path(str(script))
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
    folder = Path(__file__).parents[2] / "benchmarks" / "published"
    monkeypatch.syspath_prepend(str(folder))
    script = runpy.run_path(str(folder / "megatron_steps.py"))
    machine = script["Machine"](speed=0.9)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["id"].startswith("vtrain-single")]
    steps = [script["Step"](row) for row in rows if row["tp"] == "1"]
    errors = [abs(s.predicted_s(machine) / s.published_s - 1) for s in steps]

    assert 242 == len(errors)
    assert sum(errors) / len(errors) < 0.04
