"""The rows that were measured on a GPU: whole, counted, and split before any fit."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

import pytest
from tests.collection.made_up import predicted

from perfc.costmodels import load_target
from perfc.measure.suites import suite
from perfc.measurements import (
    MEASUREMENTS,
    TEST,
    WORKLOADS,
    read_rows,
    shape_of,
    split_of,
)

gpu: Any = importlib.import_module("collection.gpu")
collected: Any = importlib.import_module("collection.collected")

ROWS = Path(__file__).parents[2] / "benchmarks" / "rows"
FOLDERS = [path for path in sorted(ROWS.iterdir()) if path.is_dir()]


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    """Return the rows of one GPU."""
    return Path(request.param)


def test_tables_are_what_the_manifest_says(folder: Path) -> None:
    """Every table has its hash, and the counts are those of the rows."""
    manifest = predicted.read_manifest(folder, collected.SCHEMA, "rows")
    hashes = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("*.parquet")
    }
    counts = {
        "kernels.parquet": len(read_rows(folder / "kernels.parquet", MEASUREMENTS)),
        "overheads.parquet": len(read_rows(folder / "overheads.parquet", MEASUREMENTS)),
        "workloads.parquet": len(read_rows(folder / "workloads.parquet", WORKLOADS)),
    }

    assert hashes == {name: v["sha256"] for name, v in manifest["files"].items()}
    assert counts == manifest["rows"]


def test_what_is_only_scored_is_marked(folder: Path) -> None:
    """Whole workloads and their kernels are `test`, others by a hash of sizes."""
    target = load_target(collected.read_collected(folder).target)
    cases = [case for _, case in suite("workloads", gpu.device_of(target))]
    scored = {(case.op, shape_of(case.op, case.params)) for case in cases}
    kernels = read_rows(folder / "kernels.parquet", MEASUREMENTS)
    shapes = [(row.op, shape_of(row.op, row.params)) for row in kernels]
    expected = [
        TEST if shape in scored else split_of(row.op, row.params)
        for row, shape in zip(kernels, shapes, strict=True)
    ]
    steps = read_rows(folder / "workloads.parquet", WORKLOADS)

    assert {TEST} == {row.split for row in steps}
    assert [row.split for row in kernels] == expected
    assert len(scored & {*shapes}) > 1000


def test_every_workload_was_profiled(folder: Path) -> None:
    """No GPU was busy for longer than its step took, and each has its launches."""
    rows = collected.read_collected(folder)
    active = [(row.gpu_active_us, row.time_us) for row in rows.steps.values()]

    assert len(active) >= 80
    assert rows.launches.keys() == rows.steps.keys()
    assert all(busy and busy <= time for busy, time in active)
