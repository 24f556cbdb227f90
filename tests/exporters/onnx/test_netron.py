"""Netron opens an annotated model and shows what is predicted of each node.

The package netron ships the reader of its window, JavaScript; node runs it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.exporters.predictions import NODE, ONNX_FILE, copied, report_of

SCRIPT = Path(__file__).with_name("netron_reader.mjs")
_SPEC = importlib.util.find_spec("netron")

pytestmark = [
    pytest.mark.skipif(_SPEC is None, reason="needs netron: `make install`"),
    pytest.mark.skipif(NODE is None, reason="needs node: `make install`"),
]


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the examples, with its prediction."""
    folder = tmp_path_factory.mktemp("netron")
    copied(report_of(str(ONNX_FILE)), folder).export("onnx", folder / "annotated.onnx")
    return folder / "annotated.onnx"


@pytest.fixture(scope="module")
def opened(annotated: Path) -> Any:
    """What Netron shows of it."""
    assert _SPEC is not None
    assert _SPEC.origin is not None
    command = [str(NODE), str(SCRIPT), str(Path(_SPEC.origin).parent), str(annotated)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (0, "") == (done.returncode, done.stderr)
    return json.loads(done.stdout)


def test_every_node_is_shown(annotated: Path, opened: Any) -> None:
    """Netron reads the file as ONNX, and all that is predicted of nodes."""
    nodes = onnx.load(annotated, load_external_data=False).graph.node
    timed = {
        node["outputs"][0]: node["metadata"]
        for node in opened["nodes"]
        if "perfc.time_us" in node["metadata"]
    }

    assert opened["format"].startswith("ONNX ")
    written = {n.output[0]: {e.key: e.value for e in n.metadata_props} for n in nodes}
    assert timed == {k: v for k, v in written.items() if "perfc.time_us" in v}
    # Netron draws constants as values.
    shown = [node["type"] for node in opened["nodes"] if node["type"] != "Constant"]
    assert [n.op_type for n in nodes if n.op_type != "Constant"] == shown


def test_the_model_says_what_was_predicted(opened: Any) -> None:
    """The model's own properties are the report's."""
    report = report_of(str(ONNX_FILE))
    about = opened["metadata"]

    assert report.target.name == about["perfc.target"]
    assert f"{report.time_us:.6g}" == about["perfc.time_us"]
