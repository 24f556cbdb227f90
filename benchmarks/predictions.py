"""Predict everything that the plan measures, once, before anything is measured.

    python benchmarks/predictions.py [--out FOLDER] [--force]

Writes the tables of benchmarks/collection/predicted.py. The checkout must be committed:
the manifest names the commit that made them. Predictions are a record, so tables that
are there stay, unless `--force` says that nothing has been measured since.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from collection.calls import calls_of
from collection.plan import planned
from collection.predicted import (
    FOLDER,
    Predictions,
    check_none,
    measuring_seconds,
)
from collection.predictions import TARGETS, predict_all
from collection.provenance import provenance

from perfc.ir import PerfcError


def main(arguments: list[str] | None = None) -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--force", action="store_true", help="write over old ones")
    options = parser.parse_args(arguments)
    try:
        predict(options.out, force=options.force)
    except PerfcError as error:
        print(f"predictions: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def predict(folder: Path, *, force: bool) -> None:
    """Write the predictions of this checkout, and say what measuring will take.

    Raises:
        PerfcError: there are some already, the checkout has changes, or something
            cannot be predicted or written.

    """
    if not force:
        check_none(folder)
    made_by = provenance()
    found = Predictions(*predict_all(calls_of, planned()), made_by)
    found.write(folder)
    for target in TARGETS:
        rows = [row for row in found.workloads if row.target == target]
        kernels = sum(row.target == target for row in found.kernels)
        seconds = measuring_seconds(rows)
        print(
            f"{target}: {len(rows)} settings, {seconds:.0f} s to measure, {kernels} "
            "kernels"
        )


if __name__ == "__main__":
    sys.exit(main())
