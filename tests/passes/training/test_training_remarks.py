"""What a training step says of what it cannot know, or cannot do."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from perfc.ir import Program
from perfc.ir.support import UnsupportedModelError
from perfc.tools.models.model import load


class _Turned(nn.Module):
    """Turns pairs of features, as rotary embeddings by complex numbers do."""

    def __init__(self, *, beside: bool) -> None:
        super().__init__()
        self.turned, self.straight = nn.Linear(8, 8), nn.Linear(8, 8)
        self.beside = beside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(self.turned(x).reshape(-1, 4, 2))
        turned = torch.view_as_real(pairs * pairs).flatten(1)
        return turned + self.straight(x) if self.beside else turned


def _trained(folder: Path, model: nn.Module) -> Program:
    path = folder / "model.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.export.save(torch.export.export(model, (torch.rand(4, 8),)), path)
    return load(path, mode="training").program


def test_complex_gradients_are_refused_by_name(tmp_path: Path) -> None:
    """The op that leaves the real numbers is named."""
    with pytest.raises(UnsupportedModelError, match=r"aten::view_as_complex makes"):
        _trained(tmp_path, _Turned(beside=False))


def test_parameters_behind_complex_numbers_are_told_of(tmp_path: Path) -> None:
    """The others are trained, and the report says that these are not."""
    found = _trained(tmp_path, _Turned(beside=True)).diagnostics

    (said,) = [d for d in found if d.code == "complex-gradients"]
    assert "aten::view_as_complex" in said.message


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_sparse_gradients_that_a_file_does_not_tell(
    tmp_path: Path,
    optimizer: str,
    dynamo: bool,
) -> None:
    """TorchScript's exporter drops the flag; the other notes it."""
    path = tmp_path / "bag.onnx"
    indices, offsets = torch.zeros(12, dtype=torch.int64), torch.tensor([0, 4, 8])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own deprecations
        bag = nn.EmbeddingBag(50, 8, mode="sum").eval()
        told = {"opset_version": 18, "dynamo": dynamo, "verbose": False}
        torch.onnx.export(bag, (indices, offsets), path, **told)  # type: ignore[arg-type]
    found = load(path, mode="training", optimizer=optimizer).program.diagnostics
    assumed = [d for d in found if d.code == "sparse-assumed"]

    assert (optimizer != "adam" and not dynamo) == bool(assumed)
    assert all("weight" in d.message for d in assumed)
