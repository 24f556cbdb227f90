"""Valid inputs to damage, and what a user would type to have them read."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from onnx.backend.test.case.test_case import TestCase
from tests.fuzz.documents import journal, report
from tests.fuzz.generate import FILE, MODEL, Input
from tests.fuzz.generate import GENERATORS as MADE_UP
from tests.fuzz.mutate import (
    Mutator,
    damage_bytes,
    damage_json,
    damage_onnx,
    damage_pt2,
    damage_text,
    damage_toml,
)
from tests.fuzz.semantics import damage_meaning
from tests.fuzz.shardings import SHARDINGS

ROOT = Path(__file__).parents[2]
FIELDS: Mapping[str, Mutator] = {
    ".onnx": damage_onnx,
    ".pt2": damage_pt2,
    ".toml": damage_toml,
    ".json": damage_json,
    ".perfc": damage_text,
    "meaning": damage_meaning,
}
"""The mutator of fields, by suffix or by kind."""

GENERATORS = {**MADE_UP, "journals": journal, "reports": report}
"""What makes inputs of a kind that has no files."""

_TARGET = ("--target", "v100")
_H100 = ("--target", "h100")
_JSON = ("--format", "json")
_SMALL = (MODEL, "--batch", "64")
COMMANDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    ".onnx": (
        ("analyze", FILE, *_TARGET),
        ("analyze", FILE, *_TARGET, "--batch", "8"),
        ("opt", "-p", "raise-embedding-bag,shape-inference,fold-shapes", FILE),
    ),
    ".pt2": (
        ("analyze", FILE, *_TARGET),
        ("analyze", FILE, *_TARGET, "--batch", "8"),
    ),
    ".perfc": (
        ("analyze", FILE, *_H100),
        ("analyze", FILE, *_TARGET, "--batch", "8"),
        ("opt", "-p", "shape-inference,fold-shapes", FILE),
    ),
    "meaning": (
        ("analyze", FILE, *_TARGET, *_JSON),
        ("analyze", FILE, *_TARGET, "--batch", "8", *_JSON),
        ("analyze", FILE, *_H100, "--batch", "8", "--mode", "training", *_JSON),
    ),
    "targets": (("analyze", *_SMALL, "--target", FILE),),
    "systems": (("analyze", *_SMALL, "--ranks", "2", "--target", FILE),),
    "profiles": (("analyze", *_SMALL, *_TARGET, "--overheads", FILE),),
    "presets": (("analyze", *_SMALL, "--preset", FILE),),
    "scenarios": (("place", FILE, *_JSON), ("place", FILE)),
    "networks": (
        (
            *("parallel", "gpt2:layers=1", "--network", FILE, "--batch", "4"),
            *("--microbatches", "2", "-q", "--format", "json"),
        ),
    ),
    "budgets": (("check", FILE),),
    "stages": (("analyze", *_SMALL, *_TARGET, "--input-pipeline", FILE, *_JSON),),
    "plans": (
        (
            *("analyze", "dlrm-ddp:tables=6,rows=1000", "--batch", "64", *_TARGET),
            *("--pass", f"shard-embeddings{{ranks=4,plan={FILE},per-node=2}}"),
        ),
    ),
}
_SHARE_OF_FIELDS = 0.7
_LESS_OFTEN = {"relations": 0.3, SHARDINGS: 0.3}
"""Kinds of which an input takes a quarter of a second, ten times another's."""


def project_files() -> list[Path]:
    """Every kind of file that the repository has an example of."""
    folders = (
        ("tests/fixtures/onnx", "*.onnx"),
        ("tests/fixtures/pt2", "*.pt2"),
        ("tests/golden", "**/*.perfc"),
        ("tests/frontends/onnx/goldens", "*.perfc"),
        ("costmodels/targets", "*.toml"),
        ("costmodels/profiles", "*.toml"),
        ("costmodels/systems", "*.toml"),
        ("costmodels/presets", "*.toml"),
        ("tests/fixtures/documents", "*/*.*"),
    )
    return [p for folder, glob in folders for p in sorted((ROOT / folder).glob(glob))]


def write_node_models(folder: Path) -> list[Path]:
    """Write the one-node models of onnx's own tests, which use every op there is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their expected outputs overflow
        from onnx.backend.test.case.node import collect_testcases  # 10 s

        cases = collect_testcases(None)
    return list(_written(folder, cases))


def _written(folder: Path, cases: Iterable[TestCase]) -> Iterator[Path]:
    for case in cases:
        if case.model is not None:
            path = folder / f"{case.name}.onnx"
            path.write_bytes(case.model.SerializeToString())
            yield path


def read(path: Path) -> bytes:
    """Return what a file says; of a golden file, what is above its line."""
    return path.read_bytes().partition(b"// ----\n")[0]


def by_kind(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Sort files by what reads them; kinds that are made up have none."""
    kinds: dict[str, list[Path]] = {}
    for path in files:
        named = path.suffix in {".toml", ".json"}
        kind = path.parent.name if named else path.suffix
        kinds.setdefault(kind, []).append(path)
        if kind == ".perfc":
            kinds.setdefault("meaning", []).append(path)
    return {**kinds, **{kind: [] for kind in GENERATORS}}


def make_input(rng: random.Random, kinds: Mapping[str, list[Path]]) -> Input:
    """Damage or make up one input; kinds that take long are chosen less often."""
    weights = [_LESS_OFTEN.get(kind, 1.0) for kind in kinds]
    (kind,) = rng.choices([*kinds], weights)
    if kind in GENERATORS:
        return GENERATORS[kind](rng)
    path = rng.choice(kinds[kind])
    data, words = read(path), rng.choice(COMMANDS[kind])
    fields = rng.random() < _SHARE_OF_FIELDS
    by_field = FIELDS.get(kind) or FIELDS[path.suffix]
    damage = by_field if fields else damage_bytes
    return Input(path.name, path.suffix, damage(rng, data), words)
