"""What a model computes in: as reports say it, and as loaded models are converted."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import perfc
from perfc.passes.precision import ConvertDtype

_GRAPH = """
graph @g(%x: DTYPE[B,64], param %w: DTYPE[64,64]) {
  %h = linear(%x, %w) : ?
  %c = cast(%h) {dtype = !f32} : ?
  %y = softmax(%c) {axis = 1} : ?
  return %y
}
"""


@pytest.mark.parametrize(
    ("dtype", "asked", "expected"),
    [
        ("bf16", "fp32", "bf16"),
        ("bf16", "tf32", "bf16"),
        ("f16", "fp32", "fp16"),
        ("f64", "tf32", "fp64"),
        ("f32", "fp32", "fp32"),
        ("f32", "tf32", "tf32"),
        ("f32", "amp-bf16", "amp-bf16"),
    ],
)
def test_header(dtype: str, asked: str, expected: str, tmp_path: Path) -> None:
    """The type is that of most arithmetic, where nothing else is asked for."""
    path = tmp_path / "g.perfc"
    path.write_text(_GRAPH.replace("DTYPE", dtype))
    report = perfc.analyze(perfc.load(path, dims={"B": 512}), "a100", dtype=asked)

    assert (expected, expected) == (report.dtype, report.header["model"]["dtype"])
    assert f" · {expected} · " in str(report).splitlines()[0]


@pytest.mark.parametrize("dtype", ["bf16", "amp-fp16"])
def test_a_loaded_training_step_is_converted(dtype: str) -> None:
    """As if it had been loaded so: casts come before backward, buckets before sends."""
    model = perfc.load("resnet50", batch=8, mode="training", ranks=4)
    conversion = ConvertDtype(dtype.removeprefix("amp-"), autocast="amp" in dtype)
    early = perfc.load(
        "resnet50", batch=8, mode="training", ranks=4, transforms=[conversion]
    )
    report = perfc.analyze(model, "dgx-a100", dtype=dtype)

    assert perfc.analyze(early, "dgx-a100").time_us == report.time_us
    assert (dtype, 4, 8) == (report.dtype, report.model.ranks, report.model.batch)


def test_a_recorded_training_step_is_converted() -> None:
    """It is recorded once more, under autocast."""
    module, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), torch.zeros(8, 64)
    record = functools.partial(perfc.from_torch, module, x, mode="training")
    report = perfc.analyze(record(optimizer="adam"), "a100", dtype="amp-fp16")
    early = record(optimizer="adam", dtype="amp-fp16")

    assert perfc.analyze(early, "a100").time_us == report.time_us


def test_what_a_model_was_made_from_stays_in_its_process() -> None:
    """A model is pickled without it, and says then what cannot be converted."""
    model = perfc.load("dlrm-default", batch=8, mode="training")
    copy = pickle.loads(pickle.dumps(model.again))  # noqa: S301 - its own pickle

    assert copy is None
