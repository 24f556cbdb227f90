"""Predict steps of models that shaped no constant of the CPU's model, and run them.

    python -m benchmarks.cpu_models PROFILE.toml [--seconds S] [--only NAME]

The profile is one of this machine: `perfc calibrate --device cpu -o PROFILE.toml`.
Prints, for an inference and a training step of each built-in workload below, what perfc
predicts, what its twin takes (tenth and ninetieth percentile beside), and the error;
then the median of the errors.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from benchmarks.selfcheck import MODES, Step, compare, say

MODELS = (
    ("dlrm-default:rows=20000,pooling=10", 128),
    ("dlrm-mlperf:max_rows=20000", 128),
    ("dcnv2-mlperf:max_rows=10000", 32),
    ("wide-and-deep:rows=20000", 128),
    ("deepfm:max_rows=20000", 128),
    ("resnet50:batch_norm=separate", 1),
    ("bert-base:layers=2,seq=64", 2),
    ("gpt2:layers=2,seq=128", 1),
)
"""Workloads with tables and depths that two cores run in a second, and batches."""


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    steps = [
        Step(source, mode, batch)
        for source, batch in MODELS
        for mode in MODES
        if options.only in source
    ]
    with tempfile.TemporaryDirectory() as folder:
        errors = compare(steps, options.profile, options.seconds, Path(folder))
    middle = float(np.median(np.abs(errors)))
    say(f"median error of {len(errors)} steps {middle:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
