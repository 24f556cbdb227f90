"""What a joint graph of torch.export spells out becomes the calls of eager PyTorch."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.frontends.aten_recording import graph_of
from torch import nn
from torch.export.experimental import (
    _export_forward_backward,  # pyright: ignore[reportPrivateUsage]
)
from torch.nn import functional

from perfc.passes import PassManager, RaiseGradient, ShapeInference
from perfc.passes.term import parse_term  # not public
from perfc.tools.model import load  # not public

_ROWS = (4, 8)
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class _Module(nn.Module):
    """Applies a function to a parameter, and to an input."""

    def __init__(self, function: Loss, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.rand(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.weight, x)


def _ops(
    function: Loss, folder: Path, shape: tuple[int, ...] = _ROWS, x: object = None
) -> Counter[str]:
    """Export forward and backward, read them again, count the ops."""
    given = x if isinstance(x, torch.Tensor) else torch.rand(shape)
    path = folder / "joint.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        forward = torch.export.export(_Module(function, shape), (given,))
        torch.export.save(_export_forward_backward(forward), path)
    graph = graph_of(load(path).program)
    return Counter(n.op for n in graph if n.op != "constant")


def _summed(function: Callable[[torch.Tensor], torch.Tensor]) -> Loss:
    return lambda w, x: (function(w) * x).sum()


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "leaky_relu": functional.leaky_relu,
    "hardswish": functional.hardswish,
    "softmax": lambda w: functional.softmax(w, -1),
    "log_softmax": lambda w: functional.log_softmax(w, -1),
}


@pytest.mark.parametrize("name", _ACTIVATIONS)
def test_activations(name: str, tmp_path: Path) -> None:
    """The gradient of an activation is one op, and so is the activation."""
    found = _ops(_summed(_ACTIVATIONS[name]), tmp_path)
    rest = {"mul", "reduce", "fill", "expand"}

    assert {name: 1, f"{name}_backward": 1} == {
        op: n for op, n in found.items() if op not in rest
    }


def test_gelu_by_tanh(tmp_path: Path) -> None:
    """So is that of the approximation."""
    found = _ops(_summed(lambda w: functional.gelu(w, approximate="tanh")), tmp_path)

    assert (1, 1, 0) == (found["gelu"], found["gelu_backward"], found["tanh"])


_LOSSES: dict[str, Loss] = {
    "bce": functional.binary_cross_entropy,
    "bce_with_logits": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
}


@pytest.mark.parametrize("name", _LOSSES)
def test_losses(name: str, tmp_path: Path) -> None:
    """A loss is one op, and its gradient another."""
    assert {"loss": 1, "fill": 1, "loss_backward": 1} == _ops(_LOSSES[name], tmp_path)


def test_loss_of_labels(tmp_path: Path) -> None:
    """Cross entropy is a softmax and a look-up, forward and backward."""
    labels = torch.randint(0, 8, (4,))
    found = _ops(functional.cross_entropy, tmp_path, x=labels)

    assert {
        "log_softmax": 1,
        "nll_loss": 1,
        "fill": 1,
        "nll_loss_backward": 1,
        "log_softmax_backward": 1,
    } == found


def test_layer_norm(tmp_path: Path) -> None:
    """Its three gradients are the results of one op."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, w: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.norm(self.inner(w))
            return made

    net = Net()
    module = _Module(lambda w, x: (net(w) * x).sum(), _ROWS)
    module.net = net
    found = _ops_of(module, tmp_path)

    assert (1, 1) == (found["layer_norm"], found["layer_norm_backward"])
    assert 0 == found["sub"] + found["div"]


def _ops_of(module: nn.Module, folder: Path) -> Counter[str]:
    path = folder / "joint.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        forward = torch.export.export(module, (torch.rand(_ROWS),))
        torch.export.save(_export_forward_backward(forward), path)
    return Counter(n.op for n in graph_of(load(path).program))


def test_embedding(tmp_path: Path) -> None:
    """The gradient of a table is one op, without the masks around it."""
    words = torch.randint(0, 4, (3, 5))
    found = _ops(lambda w, x: functional.embedding(x, w).sum(), tmp_path, x=words)

    assert 1 == found["embedding_backward"]
    assert 0 == found["index_put"] + found["where"] + found["bitwise_and"]


def test_attention(tmp_path: Path) -> None:
    """Attention that the exporter spelled out is one call, forward and backward."""
    shape = (2, 4, 6, 8)
    found = _ops(
        lambda w, x: functional.scaled_dot_product_attention(w, w, x).sum(),
        tmp_path,
        shape,
    )

    assert (1, 1) == (found["attention"], found["attention_backward"])
    assert 0 == found["matmul"] + found["softmax"]


def test_forward_graphs_are_left_alone() -> None:
    """A model that spells a formula out, and has no backward, launches it as it is."""
    from perfc.ir import parse_program  # noqa: PLC0415 - only here

    text = """graph @g(%x: f32[8], %g: f32[8]) {
      %one = constant() {dtype = !f32, shape = [], value = 1.0} : f32[]
      %square = mul(%x, %x) : f32[8]
      %rest = sub(%one, %square) : f32[8]
      %y = mul(%g, %rest) : f32[8] loc{phase = "PHASE"}
      return %y
    }"""
    found: list[list[str]] = []
    for phase in ("forward", "backward"):
        program = parse_program(text.replace("PHASE", phase))
        PassManager((ShapeInference(), RaiseGradient())).run(program)
        found.append([node.op for node in graph_of(program)])

    assert ["constant", "mul", "sub", "mul"] == found[0]
    assert ["tanh_backward"] == [op for op in found[1] if op != "constant"]


@pytest.mark.parametrize("text", ["x", "add(x) y", "1"])
def test_text_that_is_no_formula(text: str) -> None:
    """It is refused."""
    with pytest.raises(ValueError, match="not a formula"):
        parse_term(text)
