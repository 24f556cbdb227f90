"""Score a folder of collected rows against what was predicted before.

    python benchmarks/score.py FOLDER [--predictions FOLDER] [--format table|md|json]

FOLDER is what `benchmarks/collect.py` has filled; one that was cut off is scored as far
as it came. What has no row, and rows that nobody predicted, are counted and named.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from collection.collected import read_collected
from collection.predicted import FOLDER, read_predictions
from collection.score import score
from collection.score_text import FORMATS

from perfc.ir import PerfcError


def main(arguments: list[str] | None = None) -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--predictions", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--format", choices=[*FORMATS], default="table")
    options = parser.parse_args(arguments)
    try:
        predictions = read_predictions(options.predictions)
        found = score(read_collected(options.folder), predictions)
    except PerfcError as error:
        print(f"score: error: {error}", file=sys.stderr)
        return error.exit_code
    print(FORMATS[options.format](found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
