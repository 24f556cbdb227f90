"""Score a folder of collected rows against what was predicted before.

    python benchmarks/score.py FOLDER [--predictions FOLDER | --now]
        [--format table|md|json]

FOLDER is what `benchmarks/collect.py` has filled; one that was cut off is scored as far
as it came. What has no row, and rows that nobody predicted, are counted and named.
`--now` scores what the perfc of this checkout predicts, which has seen the rows that
are marked `fit`, in place of what was predicted before.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from collection.calls import calls_of
from collection.collected import Collected, read_collected
from collection.plan import planned
from collection.predicted import FOLDER, Predictions, read_predictions
from collection.predictions import predict_all
from collection.score import score
from collection.score_text import FORMATS

from perfc.ir import PerfcError


def main(arguments: list[str] | None = None) -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    made = parser.add_mutually_exclusive_group()
    made.add_argument("--predictions", type=Path, default=FOLDER, metavar="FOLDER")
    made.add_argument("--now", action="store_true", help="by the models of today")
    parser.add_argument("--format", choices=[*FORMATS], default="table")
    options = parser.parse_args(arguments)
    try:
        rows = read_collected(options.folder)
        predictions = (
            _of_today(rows) if options.now else read_predictions(options.predictions)
        )
        found = score(rows, predictions)
    except PerfcError as error:
        print(f"score: error: {error}", file=sys.stderr)
        return error.exit_code
    print(FORMATS[options.format](found), end="")
    return 0


def _of_today(rows: Collected) -> Predictions:
    """Predict what was planned for the target of some rows; nothing is written.

    The checkout may have changes, so no commit is named.
    """
    made = {"perfc_commit": "this perfc", "date": datetime.now(UTC).date().isoformat()}
    return Predictions(*predict_all(calls_of, planned(), (rows.target,)), made)


if __name__ == "__main__":
    sys.exit(main())
