"""Calibrate this machine's CPU, predict steps of small models, run them, and compare.

    python benchmarks/selfcheck.py [--minutes N] [--seconds S] [--within SHARE]

Writes the profile and the rows to build/selfcheck. Prints, for an inference and a
training step of each model of examples/selfcheck_models.py, what perfc predicts, what
the step takes (median, tenth and ninetieth percentile), and the error. With `--within`
the exit code is 3 if the median of the errors is larger.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import perfc
from perfc.tools.cli import main as perfc_command

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "selfcheck"
MODELS = ("dlrm", "mlp", "cnn")
RATE = 0.01
WARM_UP = 5
FEWEST = 5


def say(*words: object) -> None:
    """Print one line."""
    print(*words, flush=True)


def factory(name: str) -> Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]:
    """Return a factory of the models' file."""
    path = ROOT / "examples" / "selfcheck_models.py"
    spec = importlib.util.spec_from_file_location("selfcheck_models", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]] = getattr(module, name)
    return found


def calibrate(minutes: float) -> Path:
    """Measure this machine; return its profile."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows, profile = FOLDER / "rows.csv", FOLDER / "here.toml"
    for old in (rows, profile):
        old.unlink(missing_ok=True)
    arguments = ["--device", "cpu", "--minutes", str(minutes), "--rows", str(rows)]
    code = perfc_command(["calibrate", *arguments, "-o", str(profile)])
    if code:
        sys.exit(code)
    return profile


def step_of(name: str, mode: str) -> Callable[[], Any]:
    """Return one step of a model, as perfc predicts it: SGD, the loss that fits."""
    module, args = factory(name)()
    module.train(mode == "training")
    if mode == "inference":

        def infer() -> Tensor:
            with torch.no_grad():
                found: Tensor = module(*args)
            return found

        return infer
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    out: Tensor = module(*args)
    labels = torch.zeros(len(out), dtype=torch.long)
    clicks = torch.rand(out.shape)

    def train() -> None:
        optimizer.zero_grad()
        found: Tensor = module(*args)
        if name == "dlrm":
            loss = functional.binary_cross_entropy(found, clicks)
        else:
            loss = functional.cross_entropy(found, labels)
        loss.backward()
        optimizer.step()

    return train


def measure(step: Callable[[], Any], seconds: float) -> list[float]:
    """Return what steps take, in microseconds, after a warm-up."""
    for _ in range(WARM_UP):
        step()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < FEWEST or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        samples.append((time.perf_counter() - start) * 1e6)
    return samples


def compare(profile: Path, seconds: float) -> list[float]:
    """Print predicted beside measured; return the errors."""
    say(f"{'step':18s} {'predicted':>12s} {'measured':>12s} {'p10':>12s} {'p90':>12s}")
    errors: list[float] = []
    for name in MODELS:
        for mode in ("inference", "training"):
            module, args = factory(name)()
            optimizer = "sgd" if mode == "training" else None
            model = perfc.from_torch(module, args, mode=mode, optimizer=optimizer)
            predicted = perfc.analyze(model, str(profile)).time_us
            samples = measure(step_of(name, mode), seconds)
            low, middle, high = np.percentile(samples, (10, 50, 90)).tolist()
            errors.append(predicted / middle - 1)
            times = "".join(f"{us:10.0f} us" for us in (predicted, middle, low, high))
            say(f"{name + ' ' + mode:18s}{times}  {errors[-1]:+7.1%}")
    return errors


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--within", type=float)
    options = parser.parse_args()
    torch.manual_seed(0)
    errors = compare(calibrate(options.minutes), options.seconds)
    middle = float(np.median(np.abs(errors)))
    say(f"median error {middle:.1%}; the profile is {FOLDER / 'here.toml'}")
    return 3 if options.within is not None and middle > options.within else 0


if __name__ == "__main__":
    sys.exit(main())
