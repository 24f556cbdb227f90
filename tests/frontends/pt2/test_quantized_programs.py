"""Exported programs that PyTorch's quantizers wrote, or that call ops of few bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # registers its ops

import perfc
from perfc import Model
from perfc.passes.graphs import typed

_OPS: Any = torch.ops.quantized_decomposed
_ATEN: Any = torch.ops.aten
_BYTE = (-128, 127, torch.int8)


class Pairs(torch.nn.Module):
    """What `convert_pt2e` leaves of a linear layer."""

    def __init__(self) -> None:
        """Make a weight of 8 bits and its scales."""
        super().__init__()
        weight = torch.randint(-127, 127, (512, 256), dtype=torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", torch.rand(512))
        self.register_buffer("zeros", torch.zeros(512, dtype=torch.int64))
        self.bias = torch.nn.Parameter(torch.rand(512))

    def forward(self, x: torch.Tensor) -> Any:
        """Quantise and dequantise what enters and leaves."""
        x = _OPS.quantize_per_tensor(x, 0.1, 0, *_BYTE)
        x = _OPS.dequantize_per_tensor(x, 0.1, 0, *_BYTE)
        weight = _OPS.dequantize_per_channel(
            self.weight, self.scales, self.zeros, 0, *_BYTE
        )
        y = torch.nn.functional.linear(x, weight, self.bias)
        y = _OPS.quantize_per_tensor(y, 0.1, 0, *_BYTE)
        return _OPS.dequantize_per_tensor(y, 0.1, 0, *_BYTE)


class Integers(torch.nn.Module):
    """What torchao's dynamic quantisation calls."""

    def __init__(self) -> None:
        """Make a weight of 8 bits."""
        super().__init__()
        weight = torch.randint(-127, 127, (512, 256), dtype=torch.int8)
        self.register_buffer("weight", weight)

    weight: torch.Tensor

    def forward(self, x: torch.Tensor) -> Any:
        """Multiply integers."""
        return _ATEN._int_mm(x, self.weight.t())


class Packed(torch.nn.Module):
    """A weight of 8 bits beside activations of 16."""

    def __init__(self) -> None:
        """Make the weight and its scales."""
        super().__init__()
        weight = torch.randint(-127, 127, (512, 256), dtype=torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", torch.rand(512).bfloat16())

    def forward(self, x: torch.Tensor) -> Any:
        """Unpack in the kernel."""
        return _ATEN._weight_int8pack_mm(x, self.weight, self.scales)


def exported(module: torch.nn.Module, x: torch.Tensor, folder: Path) -> Model:
    """Return a module as its archive is read."""
    path = folder / "program.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    return perfc.load(path)


@pytest.mark.parametrize(
    ("module", "x", "kernel"),
    [
        (Pairs(), torch.rand(64, 256), "quantized_decomposed::quantize_per_tensor"),
        (Integers(), torch.zeros(64, 256, dtype=torch.int8), "aten::matmul"),
        (Packed(), torch.rand(64, 256).bfloat16(), "aten::_weight_int8pack_mm"),
    ],
    ids=["pairs", "integers", "packed"],
)
def test_no_op_is_unknown(
    module: torch.nn.Module, x: torch.Tensor, kernel: str, tmp_path: Path
) -> None:
    """Each is priced as what it is."""
    report = perfc.analyze(exported(module, x, tmp_path), "a100")

    assert {} == report.coverage["unknown_ops"]
    assert kernel in {node["op"] for node in report.nodes}


def test_pairs_are_fused_as_those_of_onnx(tmp_path: Path) -> None:
    """A compiler multiplies in 8 bits, and writes what is quantised behind."""
    model = exported(Pairs(), torch.rand(64, 256), tmp_path)
    eager = perfc.analyze(model, "a100")
    compiled = perfc.analyze(model, "a100", runtime="compiled")
    graph = compiled.model.program.classes[0].ops
    assert graph is not None
    (product,) = [node for node in graph if node.op == "matmul"]

    assert "unfused-qdq" in {one.code for one in eager.diagnostics}
    assert ["i8", "i8"] == [typed(v).dtype.name for v in product.operands[:2]]
    assert "i8" == typed(product.results[0]).dtype.name


def test_their_ops_are_known_to_torch() -> None:
    """The module that registers them is there."""
    assert _decomposed.quantized_decomposed_lib is not None
