"""Documents that perfc has written itself, damaged: results of sweeps and reports."""

from __future__ import annotations

import contextlib
import functools
import io
import random
import tempfile
from pathlib import Path

from tests.fuzz.generate import FILE, MODEL, Input, spread
from tests.fuzz.mutate import damage_json, damage_table

from perfc.tools.cli.command_line import main

_SWEEP = (
    "sweep",
    MODEL,
    "--vary",
    "batch=64,128",
    "--target",
    "t4",
    "--best",
    "1",
    "-q",
)
_REPORT = ("analyze", MODEL, "--batch", "64", "--target", "t4", "--format", "json")


@functools.cache
def _written(words: tuple[str, ...], suffix: str) -> bytes:
    """Return the file that a command writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        with contextlib.redirect_stdout(io.StringIO()):
            main([*words, "-o", str(path)])
        return path.read_bytes()


def journal(rng: random.Random) -> Input:
    """Damage the result of a sweep, a table or a document, and go on with it."""
    suffix = rng.choice((".csv", ".csv", ".json", ".html"))
    data = _written(_SWEEP, suffix)
    if suffix == ".csv":
        data = damage_table(rng, data)
    elif suffix == ".json":
        data = damage_json(rng, data)
    words = (*_SWEEP, "--executor", "local:1", "--resume", "-o", FILE)
    return Input("result of a sweep", suffix, spread(rng, data), words)


def report(rng: random.Random) -> Input:
    """Damage a report, and compare it with itself."""
    data = damage_json(rng, _written(_REPORT, ".json"))
    words = ("diff", FILE, FILE, "--format", rng.choice(("json", "table")))
    return Input("report", ".json", spread(rng, data), words)
