"""Whole transformers in fp32 that NeuSight measured: `transformers_fp32.py FILE`.

FILE is `transformers_fp32_seen_gpus.csv` (NeuSight, MIT; arXiv 2407.13853): eager
PyTorch 2.1, attention spelled out, in milliseconds. Training is forward and backward,
here with SGD. Prints the errors of perfc by GPU, of labels marked clean and of all.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import perfc
from perfc.costmodels import Target, load_target, target_names
from perfc.fitting.errors import errors_of

WORKLOADS = {
    "bert_large": "bert-large:attention=eager,head=classifier",
    "gpt2_large": "gpt2-large:attention=eager",
    "gpt3_xl": "gpt3-xl:hidden=3072,heads=24,attention=eager",
    "gpt3_27": "gpt3-2.7b:attention=eager",
    "opt_13": "opt-1.3b:attention=eager",
    "switchxl4": "switch-xl-4:capacity=64",
}
"""NeuSight's configurations, by its names of models."""


def labels(path: Path) -> list[Mapping[str, str]]:
    """Return the measured steps on GPUs that perfc knows."""
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["target"] in target_names()]


def predicted_s(row: Mapping[str, str], target: Target) -> float:
    """Return the seconds that perfc predicts for a measured step."""
    return report(row, target).time_us * 1e-6


def report(row: Mapping[str, str], target: Target) -> perfc.Report:
    """Predict a measured step."""
    workload, batch = f"{WORKLOADS[row['model']]},seq={row['seq']}", int(row["batch"])
    if row["mode"] == "inf":
        model = perfc.load(workload, batch=batch)
    else:
        model = perfc.load(workload, batch=batch, mode="training", optimizer="sgd")
    return perfc.analyze(model, target)


def measured_s(row: Mapping[str, str]) -> float:
    """Return the seconds that NeuSight measured."""
    return float(row["measured_ms"]) * 1e-3


def lines(rows: list[Mapping[str, str]]) -> Iterator[str]:
    """Yield the errors by GPU, then of all."""
    names = np.array([row["target"] for row in rows])
    found = np.array([predicted_s(r, load_target(r["target"])) for r in rows])
    measured = np.array([measured_s(row) for row in rows])
    for name in (*sorted({*names}), "all"):
        at = (names == name) | (name == "all")
        errors = errors_of(found[at], measured[at])
        if errors is not None:
            yield (
                f"{name:15} n {at.sum():3}  MAPE {errors.mape:6.1%}  GMAE "
                f"{errors.gmae:6.1%}  p90 {errors.p90:6.1%}  max {errors.max:6.1%}  "
                f"bias {errors.bias:+6.1%}"
            )


def main(path: Path) -> None:
    """Run."""
    rows = labels(path)
    for text, mine in (
        ("clean", [row for row in rows if row["label_clean"] == "True"]),
        ("all", rows),
    ):
        print(text, *lines(mine), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
