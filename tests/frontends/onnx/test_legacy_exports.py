"""Files of PyTorch's older exporter launch what the model itself launches."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import perfc
from perfc.twins.vision import ResNet50

_LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
_SAME = {"aten::relu_": "aten::relu", "aten::add_": "aten::add"}
"""What a file cannot say: whether a result is written over an operand."""


def _padding(length: Any, size: int, stride: int) -> Any:
    """Return what makes of a length the one that TensorFlow's `SAME` does."""
    if isinstance(length, Tensor):  # the exporter traces sizes
        steps = (length / stride).ceil() - 1
        return torch.clamp(steps * stride + size - length, min=0)
    return max((math.ceil(length / stride) - 1) * stride + size - length, 0)


class _SameConv(nn.Conv2d):
    """A convolution that computes what it pads by, as `timm` has it."""

    def forward(self, input: Tensor) -> Tensor:
        """Pad both sides, and convolve."""
        high, wide = (_padding(length, 3, 2) for length in input.size()[-2:])
        sides = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
        return functional.conv2d(
            functional.pad(input, sides), self.weight, self.bias, self.stride
        )


class _ToMultiples(nn.Module):
    """Pad images to multiples of 32, and resize what comes of them."""

    def __init__(self) -> None:
        """Make three convolutions."""
        super().__init__()
        convs = [_SameConv(3, 8, 3, 2), nn.ReLU(), _SameConv(8, 8, 3, 2), nn.ReLU()]
        self.convs = nn.Sequential(*convs)

    def forward(self, x: Tensor) -> Tensor:
        """Compute sizes in each way."""
        high, wide = x.shape[-2:]
        y = self.convs(functional.pad(x, (0, -wide % 32, 0, -high % 32)))
        y = functional.interpolate(y, size=(y.shape[2] * 2, y.shape[3] * 2))
        return y.view(y.size(0), -1).mean(1)


def _launched(source: Any, **given: Any) -> tuple[int, Counter[str]]:
    report = perfc.analyze(perfc.load(source, **given), "a100").to_dict()
    names: list[str] = [node["op"] for node in report["nodes"]]
    ops = Counter(_SAME.get(name, name) for name in names)
    return report["summary"]["launches"], ops


def _exported(model: nn.Module, x: Tensor, path: Path, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        torch.onnx.export(model, (x,), path, dynamo=False, input_names=["x"], **options)
    return path


_DYNAMIC: Mapping[str, dict[int, str]] = {
    "fixed": {},
    "batch": {0: "batch"},
    "all": {0: "batch", 2: "high", 3: "wide"},
}


@pytest.mark.parametrize("opset", [11, 20])
@pytest.mark.parametrize("dynamic", _DYNAMIC)
def test_computed_sizes_fold(dynamic: str, opset: int, tmp_path: Path) -> None:
    """Pads and sizes that the model computes leave nothing behind, fixed or open."""
    model, x = _ToMultiples().eval(), torch.zeros(2, 3, 113, 97)
    axes = _DYNAMIC[dynamic]
    path = _exported(
        *(model, x, tmp_path / "model.onnx"),
        opset_version=opset,
        dynamic_axes={"x": axes},
    )
    sizes = {"high": 113, "wide": 97}
    dims = {name: size for name, size in sizes.items() if name in axes.values()}
    found = _launched(path, batch=2 if axes else None, dims=dims)

    assert _launched(torch.export.export(model, (x,))) == found


@pytest.mark.slow
@pytest.mark.parametrize("opset", [9, 11])
def test_resnet(opset: int, tmp_path: Path) -> None:
    """A ResNet-50 launches what PyTorch's own export of it does."""
    model, x = ResNet50().eval(), torch.zeros(2, 3, 224, 224)
    path = _exported(
        *(model, x, tmp_path / "model.onnx"),
        opset_version=opset,
        training=torch.onnx.TrainingMode.PRESERVE,  # else batch norms are folded
    )
    launches, ops = _launched(path)
    expected, own = _launched(torch.export.export(model, (x,)))

    pooled = Counter({"aten::avg_pool2d": 1}), Counter({"aten::mean": 1})
    assert (expected, own - pooled[0]) == (launches, ops - pooled[1])


def test_weights_that_are_written_as_one_number() -> None:
    """`ConstantOfShape` of a list that the file holds is a weight, not a call."""
    launches, ops = _launched(_LIGHT / "light_resnet50.onnx")

    assert (218, 53, 0) == (launches, ops["aten::conv2d"], ops["aten::full"])
    memory = perfc.analyze(str(_LIGHT / "light_resnet50.onnx"), "a100").to_dict()
    assert 4 * 25_557_032 == pytest.approx(
        memory["memory"]["parameters_bytes"], rel=3e-3
    )
