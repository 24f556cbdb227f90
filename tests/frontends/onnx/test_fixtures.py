"""What the ONNX fixtures must be to serve as fixtures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.frontends.onnx.onnx_values import (
    allows_empty_bags,
    fill,
    random_inputs,
    rows_read_by,
    run_reference,
)

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "fixtures" / "onnx"
FIXTURES = sorted(FOLDER.glob("*.onnx"))
_OTHERS = ROOT / "tests" / "fixtures"
_FOLDERS = (ROOT / "examples/models", _OTHERS / "custom_op", _OTHERS / "torchrec")
MODELS = sorted(path for folder in _FOLDERS for path in folder.glob("*.onnx"))
MAX_BYTES = 150_000
MAX_TOTAL_BYTES = 1_500_000
MACHINE_PATH = re.compile(
    rb'File "/|site-packages|(?<![\w.~-])/(?:home|root|tmp|usr|opt|Users)/'
)
MLPERF_TABLE_ROWS = 187_767_399


def _stem(path: Path) -> str:
    """Name a test after its file."""
    return path.stem


every_fixture = pytest.mark.parametrize("path", FIXTURES, ids=_stem)
every_file = pytest.mark.parametrize("path", FIXTURES + MODELS, ids=_stem)


@every_fixture
def test_runs(path: Path) -> None:
    """A fixture runs in onnxruntime and gives one finite row per bag."""
    pytest.importorskip("onnxruntime", reason="the reference run needs onnxruntime")
    rng = np.random.default_rng(0)
    model = fill(onnx.load(path, load_external_data=False), rng)
    inputs = random_inputs(model, 6, 5, rng)

    outputs = run_reference(model, inputs)

    batch = 4 if _is_static(model) else 6
    assert [batch] == [value.shape[0] for value in outputs.values()]
    assert all(np.isfinite(value).all() for value in outputs.values())


@every_file
def test_has_no_machine_path(path: Path) -> None:
    """A file does not tell where it was written."""
    assert [] == MACHINE_PATH.findall(path.read_bytes())


@every_file
def test_holds_no_weights(path: Path) -> None:
    """Only small weights lie in the file; the rest is nowhere."""
    model = onnx.load(path, load_external_data=False)

    assert path.stat().st_size <= MAX_BYTES
    assert max(len(t.raw_data) for t in model.graph.initializer) <= 1024
    assert not (path.parent / "weights.bin").exists()


def test_total_size() -> None:
    """The fixtures stay small together."""
    assert sum(path.stat().st_size for path in FIXTURES) <= MAX_TOTAL_BYTES


def test_readme_lists_every_fixture() -> None:
    """The README has one line per file."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(.+\.onnx)`", text, re.MULTILINE)

    assert sorted(path.name for path in FIXTURES) == sorted(listed)


def test_published_model_has_its_true_rows() -> None:
    """The demo model keeps the table sizes of MLPerf."""
    (path,) = [path for path in MODELS if path.stem == "dlrm_mlperf"]
    model = onnx.load(path, load_external_data=False)
    tables = [t for t in model.graph.initializer if t.name.startswith("tables.")]

    assert len(tables) == 26
    assert sum(t.dims[0] for t in tables) == MLPERF_TABLE_ROWS


def test_rows_follow_the_gather() -> None:
    """Indices are drawn for the table that they select from."""
    model = onnx.load(FOLDER / "dlrm_small_legacy_op17.onnx", load_external_data=False)
    rows = [rows_read_by(model, f"indices_{k}") for k in range(4)]

    assert [1000, 500, 200, 4] == rows


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("bag_legacy_sum_offsets", True),
        ("bag_legacy_mean_offsets", False),
        ("bag_legacy_max_offsets", False),
        ("bag_dynamo_mean_offsets", True),
        ("bag_dynamo_max_offsets", True),
    ],
)
def test_empty_bags_are_made_where_legal(name: str, *, legal: bool) -> None:
    """Offsets repeat where the file handles an empty bag, and only there."""
    model = onnx.load(FOLDER / f"{name}.onnx", load_external_data=False)
    inputs = random_inputs(model, 8, 3, np.random.default_rng(0))

    assert legal == allows_empty_bags(model)
    assert legal == (len(np.unique(inputs["offsets"])) < 8)
    assert inputs["offsets"][0] == 0


def _is_static(model: onnx.ModelProto) -> bool:
    """Whether the file fixes the batch."""
    return bool(model.graph.input[0].type.tensor_type.shape.dim[0].dim_value)
