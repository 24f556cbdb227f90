"""Published whole steps with their intervals.

DLRM, CNNs, transformers and language models. Nothing of a kernel's or a host's time is
fitted to these steps but what the other scripts of this folder say; each has a model,
and most a board, that no fit has seen.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

import perfc
from perfc.costmodels import load_target

sys.path.append(str(Path(__file__).parents[1]))
from published import lin_steps, llm_steps, transformers_fp32


@attrs.frozen
class WholeStep:
    """A step that was measured, and what is said of it.

    Attributes:
        kind: What it is of.
        name: The step.
        target: The GPU.
        measured_us: What it took.
        low_us: 5th percentile of what is predicted.
        time_us: What is predicted.
        high_us: 95th percentile.

    """

    kind: str
    name: str
    target: str
    measured_us: float
    low_us: float
    time_us: float
    high_us: float

    @classmethod
    def of(
        cls, kind: str, name: str, measured_us: float, report: perfc.Report
    ) -> WholeStep:
        """Return a step and its report."""
        low_us, high_us = report.interval_us
        target = report.target.name
        return cls(kind, name, target, measured_us, low_us, report.time_us, high_us)

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds what it took."""
        return self.low_us <= self.measured_us <= self.high_us


def whole_steps(folder: Path) -> Iterator[WholeStep]:
    """Yield the steps of a folder `end_to_end`, but for those that others spoil."""
    for kind, file, column in (
        ("DLRM", "dlrm_lin_v100.csv", "measured_e2e_ms"),
        ("CNN", "cv_lin_v100.csv", "measured_iter_ms"),
    ):
        for row in _rows(folder / file):
            name = f"{row['model']}, {row['batch_size']}"
            found = lin_steps.report(row)
            yield WholeStep.of(kind, name, float(row[column]) * 1e3, found)
    for row in _rows(folder / "transformers_fp32_seen_gpus.csv"):
        name = f"{row['model']}, {row['batch']} x {row['seq']}, {row['mode']}"
        found = transformers_fp32.report(row, load_target(row["target"]))
        yield WholeStep.of("transformer", name, float(row["measured_ms"]) * 1e3, found)
    for row in _rows(folder / "llm_training_steps.csv"):
        if row["model"] not in llm_steps.SIZES or row["precision"] == "amp_fp8":
            continue
        if row["id"] not in llm_steps.OUTLIERS:
            yield _language_model(llm_steps.Step(row, "flash-1"))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _language_model(step: llm_steps.Step) -> WholeStep:
    """Return a step of several microbatches, as uncertain as one of them."""
    report = step.predicted()
    time_us = llm_steps.whole_s(report, step.microbatches) * 1e6
    low_us, high_us = (end * time_us / report.time_us for end in report.interval_us)
    row, measured_us = step.row, step.measured_s * 1e6
    name = f"{row['id']} {row['model']}, {row['gpus']} x {row['gpu']}"
    return WholeStep("LLM", name, row["gpu"], measured_us, low_us, time_us, high_us)
