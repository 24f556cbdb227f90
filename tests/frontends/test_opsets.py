"""Which opsets and file versions are read, and what a user hears of the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from tests.frontends.onnx_models import info, model, node

import perfc
from perfc.tools.cli import main

NEWEST = onnx.defs.onnx_opset_version()
RELU = node("Relu", "x", "y")


def _write(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
@pytest.mark.parametrize("opset", range(11, NEWEST + 1))
def test_reads_every_opset(opset: int, domain: str, tmp_path: Path) -> None:
    """From 11 to the newest that the installed onnx knows."""
    path = _write(tmp_path, model([RELU], opsets={domain: opset}))

    assert 4 == perfc.load(path, batch=4).batch


_CONVERT = (
    "convert the file with onnx.version_converter, or export it again with "
    "opset_version 11 or later"
)


@pytest.mark.parametrize(
    ("opsets", "problem"),
    [
        (
            {"": 10},
            (
                "the model imports opset 10 of the default domain; supported are 11 to "
                f"{NEWEST}; {_CONVERT}"
            ),
        ),
        (
            {"": -1},
            (
                "the model imports opset -1 of the default domain; supported are 11 to "
                f"{NEWEST}; {_CONVERT}"
            ),
        ),
        (
            {"": NEWEST + 1},
            (
                f"the model imports opset {NEWEST + 1} of the default domain; "
                f"supported are 11 to {NEWEST}; install a newer onnx, or export the "
                "model with an older opset_version"
            ),
        ),
        (
            {},
            (
                "the model imports no opset of the default domain; expected opset 11 "
                f"or later; {_CONVERT}"
            ),
        ),
        (
            {"com.example": 3},
            (
                "the model imports no opset of the default domain; expected opset 11 "
                f"or later; {_CONVERT}"
            ),
        ),
        (
            {"": 18, "ai.onnx": 17},
            "the default domain is imported in opset 18 and in opset 17; expected one",
        ),
        (
            {"": 18, "ai.onnx": 18, "com.example": 1},
            "",
        ),
    ],
)
def test_refuses_other_opsets(
    opsets: Mapping[str, int],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line says what was found, what is supported and what to do; exit 1."""
    path = _write(tmp_path, model([RELU], opsets=opsets))
    code = main(["analyze", str(path), "--target", "a100", "--batch", "4"])
    captured = capsys.readouterr()

    assert (1 if problem else 0) == code
    assert (f"perfc: error: {path}: {problem}\n" if problem else "") == captured.err


def test_a_model_without_default_ops_needs_no_opset(tmp_path: Path) -> None:
    """A tree ensemble alone imports its own domain alone."""
    nodes = [node("Scaler", "x", "y", domain="ai.onnx.ml")]
    path = _write(tmp_path, model(nodes, opsets={"ai.onnx.ml": 3}))

    assert 4 == perfc.load(path, batch=4).batch


def test_refuses_a_newer_file_format(tmp_path: Path) -> None:
    """A file of a later ONNX IR version may hold what the protobuf cannot decode."""
    proto = model([RELU])
    proto.ir_version = onnx.IR_VERSION + 1
    path = _write(tmp_path, proto)
    with pytest.raises(perfc.PerfcError) as caught:
        perfc.load(path)

    assert (
        f"{path}: the file has ONNX IR version {onnx.IR_VERSION + 1}, the installed "
        f"onnx knows 1 to {onnx.IR_VERSION}; install a newer onnx, or export with an "
        "older one"
    ) == str(caught.value)


def test_reads_old_file_formats(tmp_path: Path) -> None:
    """IR version 3 lists every initializer among the inputs."""
    proto = model(
        [node("Add", "x b", "y")],
        inputs=[info("x", ["batch", 8]), info("b", [8])],
        initializers=[onnx.helper.make_tensor("b", 1, [8], [0.5] * 8)],
        opsets={"": 11},
    )
    proto.ir_version = 3
    graph = perfc.load(_write(tmp_path, proto), batch=4).program.classes[0].ops

    assert graph is not None
    assert ["x"] == [value.name for value in graph.inputs]
    assert ["b"] == [value.name for value in graph.parameters]
