"""Linear layers of captured modules in fewer bits: those that exports have."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import perfc
from perfc import Model


class Layers(nn.Module):
    """Layers with a bias and without, and rows times a matrix of its own."""

    def __init__(self) -> None:
        """Make them."""
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 64, bias=False)
        self.own = nn.Parameter(torch.zeros(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run one after another."""
        made: torch.Tensor = self.second(torch.relu(self.first(x))) @ self.own
        return made


_GRADIENTS = 5
"""Two of each layer, but for that of the input."""


def narrow(model: Model) -> list[str]:
    """Return the phases of GEMMs that have an operand of 8 bits or fewer."""
    graph = model.program.classes[0].ops
    assert graph is not None
    return [
        node.location.phase
        for node in graph
        if node.op in {"matmul", "packed_linear"}
        and any(v.type is not None and v.type.dtype.bits <= 8 for v in node.operands)
    ]


@pytest.mark.parametrize("dtype", ["fp8", "int8", "w8a16", "w4a16"])
@pytest.mark.parametrize("shape", [(32, 64), (4, 8, 64)])
def test_captured_layers_are_converted(shape: tuple[int, ...], dtype: str) -> None:
    """As many as of an export of the same module: all of them."""
    x = torch.zeros(shape)
    captured = perfc.from_torch(Layers(), x, dtype=dtype)
    exported = perfc.from_torch(torch.export.export(Layers(), (x,)), dtype=dtype)

    assert ["forward"] * 3 == narrow(captured) == narrow(exported)


@pytest.mark.parametrize("dtype", ["fp8", "mxfp8"])
@pytest.mark.parametrize("shape", [(32, 64), (4, 16, 64)])
def test_captured_steps_are_converted(shape: tuple[int, ...], dtype: str) -> None:
    """Forward and backward of each layer, however PyTorch views its rows."""
    step = perfc.from_torch(
        *(Layers(), torch.zeros(shape)),
        mode="training",
        optimizer="sgd",
        loss="sum",
        dtype=dtype,
    )

    assert ["forward"] * 3 + ["backward"] * _GRADIENTS == narrow(step)


def test_the_types_that_other_layers_keep_are_told() -> None:
    """Of a convolution beside a layer, and of a module that has no layer."""
    conv, images = nn.Conv2d(3, 8, 3), torch.zeros(2, 3, 16, 16)
    both = nn.Sequential(conv, nn.Flatten(), nn.Linear(8 * 14 * 14, 16))
    told = [
        {one.code: one.message for one in perfc.analyze(model, "a100").diagnostics}
        for model in (
            perfc.from_torch(module, images, dtype="int8") for module in (both, conv)
        )
    ]

    assert "no-linear" not in told[0]
    assert "has no linear layers: int8 changes nothing" in told[1]["no-linear"]
    for each in told:
        assert "it changes nothing of 1 convolution" in each["linear-only"]
