"""Calibrate this machine's CPU, predict steps of small models, run them, and compare.

    python benchmarks/selfcheck.py [--minutes N] [--seconds S] [--within SHARE]

Writes the profile and the rows to build/selfcheck. Prints, for an inference and a
training step of each model of examples/selfcheck_models.py, what perfc predicts, what
the step takes (median, tenth and ninetieth percentile), and the error. With `--within`
the exit code is 3 if the median of the errors is larger.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import perfc
from perfc.measurements import WORKLOADS, WorkloadMeasurement, read_rows
from perfc.tools.cli import main as perfc_command

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "selfcheck"
MODELS_FILE = ROOT / "examples" / "selfcheck_models.py"
MODELS = ("dlrm", "mlp", "cnn")
TRAINING = "training"
MODES = ("inference", TRAINING)
OPTIMIZER = "sgd"
MOST = 100_000
"""Iterations: what is timed ends with the time."""


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


def measure(source: str, seconds: float) -> list[WorkloadMeasurement]:
    """Run an inference and a training step for real; return their rows."""
    table = FOLDER / f"{source.rpartition(':')[2]}.csv"
    table.unlink(missing_ok=True)
    modes = [word for mode in MODES for word in ("--mode", mode)]
    until = ("--iterations", str(MOST), "--minutes", str(seconds / 60))
    run(
        *("measure", "workload", source, "--device", "cpu", "--quiet"),
        *(*modes, "--optimizer", OPTIMIZER, *until, "-o", str(table)),
    )
    return read_rows(table, WORKLOADS)


def compare(profile: Path, seconds: float) -> list[float]:
    """Print predicted beside measured; return the errors."""
    say(f"{'step':18s} {'predicted':>12s} {'measured':>12s} {'p10':>12s} {'p90':>12s}")
    errors: list[float] = []
    for name in MODELS:
        source = f"{MODELS_FILE}:{name}"
        for row in measure(source, seconds):
            optimizer = OPTIMIZER if row.mode == TRAINING else None
            model = perfc.load(source, mode=row.mode, optimizer=optimizer)
            predicted = perfc.analyze(model, str(profile)).time_us
            errors.append(predicted / row.time_us - 1)
            shown = (predicted, row.time_us, row.p10_us, row.p90_us)
            times = "".join(f"{us:10.0f} us" for us in shown if us is not None)
            say(f"{name + ' ' + row.mode:18s}{times}  {errors[-1]:+7.1%}")
    return errors


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--within", type=float)
    options = parser.parse_args()
    errors = compare(calibrate(options.minutes), options.seconds)
    middle = float(np.median(np.abs(errors)))
    say(f"median error {middle:.1%}; the profile is {FOLDER / 'here.toml'}")
    return 3 if options.within is not None and middle > options.within else 0


if __name__ == "__main__":
    sys.exit(main())
