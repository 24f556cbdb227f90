"""Runs inputs by number, for `run.py`: a number in, a line of JSON out.

It is a process of its own so that what kills it, or never ends, is one input's
problem.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import attrs
from tests.fuzz.corpus import by_kind, make_input
from tests.fuzz.generate import Input
from tests.fuzz.trial import limit_memory, run


def numbered_input(seed: int, number: int, kinds: Mapping[str, list[Path]]) -> Input:
    """Return input *number* of the series that *seed* starts."""
    return make_input(random.Random(f"{seed}/{number}"), kinds)


def main() -> int:
    """Answer the numbers on stdin."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    seed, corpus = int(sys.argv[1]), Path(sys.argv[2])
    lines = corpus.read_text(encoding="utf-8").splitlines()
    kinds = by_kind(map(Path, lines))
    limit_memory()
    answers = sys.stdout
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            item = numbered_input(seed, int(line), kinds)
            verdict = run(item, Path(folder))
            answer = {"source": item.source, **attrs.asdict(verdict)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
