"""Calibrate this machine's CPU, predict steps of small models, run them, and compare.

    python benchmarks/selfcheck.py [--minutes N] [--seconds S] [--within SHARE]

Writes the profile and the rows to build/selfcheck. Prints, for an inference and a
training step of each model of examples/selfcheck_models.py, what perfc predicts, what
the step takes (mean of the medians of some rounds, tenth and ninetieth percentile), and
the error; then how long the first shapes of the calibration take when they are measured
again. With `--within` the exit code is 3 if the median of the errors is larger.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np

import perfc
from perfc.measurements import (
    MEASUREMENTS,
    WORKLOADS,
    WorkloadMeasurement,
    read_rows,
)
from perfc.tools.cli.command_line import main as perfc_command

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "selfcheck"
MODELS_FILE = ROOT / "examples" / "selfcheck_models.py"
MODELS = ("dlrm", "mlp", "cnn")
TRAINING = "training"
MODES = ("inference", TRAINING)
OPTIMIZER = "sgd"
MOST = 100_000
"""Iterations: what is timed ends with the time."""

ROUNDS = 3
"""In which each step is timed: the machine is slow for seconds at a time."""

AGAIN_SECONDS = 6.0


def say(*words: object) -> None:
    """Print one line."""
    print(*words, flush=True)


def run(*arguments: str) -> None:
    """Run a command of perfc; leave with its exit code if it fails."""
    code = perfc_command(list(arguments))
    if code:
        sys.exit(code)


def calibrate(minutes: float) -> Path:
    """Measure this machine; return its profile."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows, profile = FOLDER / "rows.csv", FOLDER / "here.toml"
    for old in (rows, profile):
        old.unlink(missing_ok=True)
    what = ("--device", "cpu", "--minutes", str(minutes), "--rows", str(rows))
    run("calibrate", *what, "-o", str(profile))
    return profile


@attrs.frozen
class Step:
    """A step of a model.

    Attributes:
        source: A built-in workload, or file:factory.
        mode: `inference` or `training`.
        batch: Samples; None for the factory's own.

    """

    source: str
    mode: str
    batch: int | None = None

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{Path(self.source).name.rpartition('py:')[2]} {self.mode}"

    @property
    def optimizer(self) -> str | None:
        """Optimizer of a training step; None in other modes."""
        return OPTIMIZER if self.mode == TRAINING else None

    def measured(self, table: Path, seconds: float) -> WorkloadMeasurement:
        """Run it for real, so long; return its row."""
        table.unlink(missing_ok=True)
        batch = () if self.batch is None else ("--batch", str(self.batch))
        optimizer = () if self.optimizer is None else ("--optimizer", self.optimizer)
        until = ("--iterations", str(MOST), "--minutes", str(seconds / 60))
        run(
            *("measure", "workload", self.source, "--device", "cpu", "--quiet"),
            *("--mode", self.mode, *optimizer, *batch, *until, "-o", str(table)),
        )
        (row,) = read_rows(table, WORKLOADS)
        return row

    def predicted_us(self, profile: Path) -> float:
        """Predict it."""
        model = perfc.load(
            self.source, mode=self.mode, optimizer=self.optimizer, batch=self.batch
        )
        return perfc.analyze(model, str(profile)).time_us


def compare(
    steps: Sequence[Step], profile: Path, seconds: float, folder: Path
) -> list[float]:
    """Print predicted beside measured; return the errors."""
    width = max((len(step.name) for step in steps), default=0)
    heads = ("predicted", "measured", "p10", "p90")
    each_s = seconds / ROUNDS
    rounds = [
        [step.measured(folder / "step.csv", each_s) for step in steps]
        for _ in range(ROUNDS)
    ]
    say(f"{'step':{width}s}" + "".join(f"{head:>13s}" for head in heads))
    errors: list[float] = []
    for step, *rows in zip(steps, *rounds, strict=True):
        predicted = step.predicted_us(profile)
        columns = [(row.time_us, row.p10_us or 0.0, row.p90_us or 0.0) for row in rows]
        shown = [predicted, *np.mean(columns, axis=0).tolist()]
        errors.append(predicted / shown[1] - 1)
        times = "".join(f"{us:10.0f} us" for us in shown)
        say(f"{step.name:{width}s}{times}  {errors[-1]:+7.1%}")
    return errors


def say_drift(rows: Path, again: Path) -> None:
    """Measure the first shapes of a calibration once more; print what has changed."""
    again.unlink(missing_ok=True)
    what = ("--device", "cpu", "--minutes", str(AGAIN_SECONDS / 60), "--quiet")
    run("measure", "kernels", *what, "-o", str(again))
    before = {
        (row.op, row.dtype, row.params): row.latency_us
        for row in read_rows(rows, MEASUREMENTS)
    }
    now = [
        (before[key], row.latency_us)
        for row in read_rows(again, MEASUREMENTS)
        if (key := (row.op, row.dtype, row.params)) in before
    ]
    if now:
        first, second = np.array(now).T
        middle = float(np.median(second / first))
        apart = float(np.mean(np.abs(second / first / middle - 1)))
        say(
            f"{len(now)} shapes again: {middle:.2f} times as long in the median, "
            f"from which each is {apart:.1%} away"
        )


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.8)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--within", type=float)
    options = parser.parse_args()
    steps = [Step(f"{MODELS_FILE}:{name}", mode) for name in MODELS for mode in MODES]
    errors = compare(steps, calibrate(options.minutes), options.seconds, FOLDER)
    say_drift(FOLDER / "rows.csv", FOLDER / "again.csv")
    middle = float(np.median(np.abs(errors)))
    say(f"median error {middle:.1%}; the profile is {FOLDER / 'here.toml'}")
    return 3 if options.within is not None and middle > options.within else 0


if __name__ == "__main__":
    sys.exit(main())
