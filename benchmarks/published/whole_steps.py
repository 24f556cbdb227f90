"""Published whole steps with their intervals.

DLRM, CNNs, transformers and language models. Nothing of a kernel's or a host's time is
fitted to these steps but what the other scripts of this folder say; each has a model,
and most a board, that no fit has seen.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
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
        row: The step, as its file has it.
        measured_us: What it took.
        low_us: 5th percentile of what is predicted.
        time_us: What is predicted.
        high_us: 95th percentile.

    """

    kind: str
    row: Mapping[str, str]
    measured_us: float
    low_us: float
    time_us: float
    high_us: float


def whole_steps(folder: Path) -> Iterator[WholeStep]:
    """Yield the steps of a folder `end_to_end`, but for those that others spoil."""
    yield from lin_iterations(folder)
    yield from transformers(folder)
    for step in language_models(folder):
        if step.row["id"] not in llm_steps.OUTLIERS:
            yield step


def lin_iterations(folder: Path) -> Iterator[WholeStep]:
    """Yield the training iterations of Lin et al.: DLRM and CNNs."""
    for kind, file, column in (
        ("DLRM", "dlrm_lin_v100.csv", "measured_e2e_ms"),
        ("CNN", "cv_lin_v100.csv", "measured_iter_ms"),
    ):
        for row in _rows(folder / file):
            yield _of(kind, row, float(row[column]), lin_steps.report(row))


def transformers(folder: Path) -> Iterator[WholeStep]:
    """Yield whole transformers in fp32."""
    for row in _rows(folder / "transformers_fp32_seen_gpus.csv"):
        measured_ms = float(row["measured_ms"])
        found = transformers_fp32.report(row, load_target(row["target"]))
        yield _of("transformer", row, measured_ms, found)


def language_models(folder: Path) -> Iterator[WholeStep]:
    """Yield steps of MPT: several microbatches are as uncertain as one of them."""
    for row in _rows(folder / "llm_training_steps.csv"):
        if row["model"] not in llm_steps.SIZES or row["precision"] == "amp_fp8":
            continue
        step = llm_steps.Step(row, "flash-1")
        report = step.predicted()
        time_us = llm_steps.whole_s(report, step.microbatches) * 1e6
        low_us, high_us = (end * time_us / report.time_us for end in report.interval_us)
        yield WholeStep("LLM", row, step.measured_s * 1e6, low_us, time_us, high_us)


def _of(
    kind: str, row: Mapping[str, str], measured_ms: float, report: perfc.Report
) -> WholeStep:
    low_us, high_us = report.interval_us
    return WholeStep(kind, row, measured_ms * 1e3, low_us, report.time_us, high_us)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
