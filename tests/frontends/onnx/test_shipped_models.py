"""The models that the installed onnx ships, of all opsets: an answer, or one line."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from perfc.tools.cli.command_line import main

_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
_FILES = sorted(_DATA.rglob("*.onnx"))
_SECONDS = 10

_UNKNOWABLE = (
    "depend on data",
    "depends on data",
    "is a sequence, and the file does not say of how many tensors",
    "has no tensor type with a known rank",
    "dimensions without a number: n (the batch); add --batch N",
)
"""What no file says: lengths that data decide, what optional inputs are."""


def _failures(
    models: Mapping[str, bytes],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[str]:
    """Analyze every model; yield what is no answer, nor one line that says why."""
    path = folder / "model.onnx"
    for name, data in models.items():
        path.write_bytes(data)
        start = time.process_time()
        code = main(["analyze", str(path), "--target", "a100"])
        if time.process_time() - start > _SECONDS:
            yield f"{name}: takes over {_SECONDS} s"
        printed = capsys.readouterr()
        lines = printed.err.splitlines()
        if code and (len(lines) != 1 or not any(map(lines[0].count, _UNKNOWABLE))):
            yield f"{name}: {lines}"
        if not code and not printed.out:
            yield f"{name}: no report"


@pytest.mark.slow
def test_every_node_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No op in no opset is refused but for what data decide."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own arithmetic overflows at will
        collected: Any = collect_testcases(None)
    cases = {case.name: case.model.SerializeToString() for case in collected}

    assert [] == list(_failures(cases, tmp_path, capsys))
    assert 1500 < len(cases)


@pytest.mark.slow
def test_every_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is any of the files, of opsets 1 to 11 and later."""
    models = {str(path): path.read_bytes() for path in _FILES}

    assert [] == list(_failures(models, tmp_path, capsys))
    assert 100 < len(models)


def test_some_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The networks among them, and a sample of the others."""
    networks = [path for path in _FILES if path.parent.name == "light"]
    models = {str(path): path.read_bytes() for path in (*networks, *_FILES[::15])}

    assert [] == list(_failures(models, tmp_path, capsys))
