"""Models that people train come in whole: recommenders, vision, language, an LSTM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from tests.models import language
from tests.models.recurrent import Tagger
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import perfc
from perfc.ir import Graph
from perfc.twins import (
    Dcnv2,
    DeepFm,
    DlrmNet,
    InceptionV3,
    ResNet50,
    WideAndDeep,
    bags_of,
)

BATCH = 4
ROWS = (1000, 500, 200)

Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def _dlrm() -> Case:
    offsets, indices = bags_of(len(ROWS), BATCH, pooling=2)
    module = DlrmNet((13, 64, 16), ROWS, (32, 1))
    return module, (torch.zeros(BATCH, 13), offsets, indices), {}


def _with_bags(module: nn.Module, dense: int) -> Case:
    offsets, indices = bags_of(len(ROWS), BATCH, pooling=1)
    pairs = zip(indices, offsets, strict=True)
    bags = [tensor for pair in pairs for tensor in pair]
    return module, (torch.zeros(BATCH, dense), *bags), {}


def _images(make: Callable[[], nn.Module], size: int) -> Case:
    return make(), (torch.zeros(2, 3, size, size),), {}


def _transformer(name: str) -> Case:
    module, args = getattr(language, name)(layers=2)
    return module, args, {}


def _switch() -> Case:
    module, (encoded, decoded) = language.switch()
    return module, (), {"input_ids": encoded, "decoder_input_ids": decoded}


MODELS: Mapping[str, Callable[[], Case]] = {
    "dlrm": _dlrm,
    "dcnv2": lambda: _with_bags(Dcnv2(ROWS, 16, layers=2, rank=8), 13),
    "deepfm": lambda: _with_bags(DeepFm(ROWS, 16), 13),
    "wide-and-deep": lambda: _with_bags(WideAndDeep(ROWS, 16), 512),
    "resnet50": lambda: _images(ResNet50, 224),
    "inception-v3": lambda: _images(InceptionV3, 299),
    "lstm": lambda: (Tagger(), (torch.zeros((2, 5), dtype=torch.int64),), {}),
    "switch": _switch,
    **{
        name: partial(_transformer, name)
        for name in ("bert", "gpt2", "llama", "opt", "qwen", "vit")
    },
}


def _graph(model: perfc.Model) -> Graph:
    (rank,) = model.program.classes
    assert rank.ops is not None
    return rank.ops


@pytest.mark.parametrize("name", MODELS)
def test_forward(name: str) -> None:
    """Every op is known and priced."""
    module, args, kwargs = MODELS[name]()
    model = perfc.from_torch(module.eval(), args, kwargs)
    report = perfc.analyze(model, target="a100")

    assert "unknown" not in {node.op for node in _graph(model)}
    assert "unknown-op" not in {d.code for d in report.diagnostics}
    assert {"forward"} == {node.location.phase for node in _graph(model)}


@pytest.mark.parametrize("name", ["dlrm", "resnet50", "inception-v3", "bert", "opt"])
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    """Matmuls of one forward pass; we count the sums of biases, too: within 3 %."""
    module, args, kwargs = MODELS[name]()
    report = perfc.analyze(perfc.from_torch(module.eval(), args, kwargs), target="a100")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*args, **kwargs)
    kinds = ("gemm", "conv2d", "attention")
    launches = report.results.hosted[0].graph
    flops = sum(
        launches.kernels[kernel].work.flops
        for kernel in launches.kernel
        if kernel >= 0 and launches.kernels[kernel].op in kinds
    )

    assert pytest.approx(counter.get_total_flops(), rel=0.03) == flops


@pytest.mark.parametrize("name", MODELS)
def test_training(name: str) -> None:
    """A whole step is known and priced, and every parameter is updated."""
    module, args, kwargs = MODELS[name]()
    model = perfc.from_torch(module, args, kwargs, mode="training", optimizer="adamw")
    report = perfc.analyze(model, target="a100")
    graph = _graph(model)
    updated = {
        value.name
        for node in graph
        if node.location.phase == "optimizer"
        for value in node.operands
    }

    assert "unknown" not in {node.op for node in graph}
    assert "unknown-op" not in {d.code for d in report.diagnostics}
    assert {"forward", "backward", "optimizer"} <= {n.location.phase for n in graph}
    trained = list(module.parameters())
    tensors = [p for p in graph.parameters if p.type is not None and p.type.rank]
    assert len(trained) == sum(p.name in updated for p in tensors)
    states = 2 * sum(p.numel() * p.element_size() for p in trained)
    rounding = 2 * 512 * len(trained)
    assert states <= report.memory["optimizer_bytes"] <= states + rounding


class _Last(nn.Module):
    """The last result of a stack of recurrent layers."""

    def __init__(self, layers: nn.Module) -> None:
        """Keep the layers."""
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run them over all steps."""
        states: torch.Tensor = self.layers(x)[0]
        return states[-1]


@pytest.mark.parametrize(
    ("make", "nbytes"), [(nn.LSTM, 736_000_000), (nn.GRU, 864_000_000)]
)
def test_recurrent_layers_reserve_what_cudnn_asks_for(
    make: Callable[..., nn.Module], nbytes: int
) -> None:
    """Forward keeps for backward as much as cuDNN said in pytorch/pytorch#2895.

    There are 1,000 steps of 25 samples there; what counts is how many in all.
    """
    module = _Last(make(123, 320, 4))
    step = perfc.from_torch(module, torch.zeros(10, 2500, 123), mode="training")
    live = perfc.analyze(step, "v100").memory["live_at_peak"]

    assert nbytes in [buffer["bytes"] for buffer in live]
