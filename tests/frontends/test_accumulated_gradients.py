"""Gradients of values with several readers are added up where autograd adds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tests.frontends.aten_recording import graph_of
from torch import Tensor, nn
from torch.nn import functional

import perfc
from perfc.ir import Graph
from perfc.ir.location import ACCUMULATE_GRAD
from perfc.passes.training import Training

Forward = Callable[["Layers", Tensor], Tensor]


class Layers(nn.Module):
    """Layers, and one way to put them together."""

    def __init__(self, forward: Forward) -> None:
        """Make the layers."""
        super().__init__()
        self.table = nn.Embedding(100, 64)
        self.linear, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)
        self.together = forward

    def forward(self, indices: Tensor) -> Tensor:
        """Put them together."""
        return self.together(self, indices)


def _tied(layers: Layers, i: Tensor) -> Tensor:
    return functional.linear(layers.table(i), layers.table.weight)


def _twice(layers: Layers, i: Tensor) -> Tensor:
    x: Tensor = layers.table(i)
    return x + torch.relu(x)


def _same(layers: Layers, i: Tensor) -> Tensor:
    x = torch.tanh(layers.table(i))
    return x + x


def _pre_norm(layers: Layers, i: Tensor) -> Tensor:
    x = layers.table(i)
    x = torch.tanh(x + layers.linear(layers.norm(x)))
    return torch.tanh(x + layers.linear(layers.norm(x)))


def _post_norm(layers: Layers, i: Tensor) -> Tensor:
    x = layers.norm(layers.table(i))
    return torch.tanh(layers.norm(x + layers.linear(x)))


def _gates(layers: Layers, i: Tensor) -> Tensor:
    x = layers.norm(layers.table(i))
    gated: Tensor = layers.linear(x) * layers.linear(x) + layers.linear(x)
    return gated


CASES: Mapping[str, Forward] = {
    "tied": _tied,
    "twice": _twice,
    "same": _same,
    "pre-norm": _pre_norm,
    "post-norm": _post_norm,
    "gates": _gates,
}
_INDICES = torch.zeros((4, 8), dtype=torch.int64)


def _real(module: nn.Module) -> list[bool]:
    """Return of each sum of gradients that a run makes whether it is in place."""
    loss = module(_INDICES).sum()
    activities = [torch.profiler.ProfilerActivity.CPU]
    profiler: Any = torch.profiler.profile(activities=activities)
    with profiler:
        loss.backward()
    names = [event.name for event in profiler.events()]
    return [n == "aten::add_" for n in names if n in {"aten::add", "aten::add_"}]


def _recorded(graph: Graph | None) -> list[bool]:
    assert graph is not None
    return [
        node.attributes.get("in_place") is True
        for node in graph
        if node.op == "add" and node.location.phase == "backward"
    ]


@pytest.mark.parametrize("case", CASES)
def test_recorded_sums_are_those_of_a_run(case: str) -> None:
    """In place if nothing else holds the first gradient's memory."""
    module = Layers(CASES[case])
    model = perfc.from_torch(module, (_INDICES,), mode="training", loss="sum")

    assert _real(module) == _recorded(model.program.classes[0].ops)


@pytest.mark.parametrize("case", CASES)
def test_derived_sums_are_those_of_a_run(case: str) -> None:
    """So does the pass `training`."""
    module = Layers(CASES[case])
    model = perfc.from_torch(module, (_INDICES,), transforms=[Training(loss="sum")])

    assert _real(module) == _recorded(model.program.classes[0].ops)


def _handed_over(graph: Graph | None) -> int:
    """Return how many parameters get their gradients."""
    assert graph is not None
    return sum(node.location.origin == ACCUMULATE_GRAD for node in graph)


@pytest.mark.parametrize("case", CASES)
def test_each_parameter_is_handed_its_gradient_once(case: str) -> None:
    """Autograd runs a node for each parameter, recorded or derived."""
    module = Layers(CASES[case])
    recorded = perfc.from_torch(module, (_INDICES,), mode="training", loss="sum")
    derived = perfc.from_torch(module, (_INDICES,), transforms=[Training(loss="sum")])
    module(_INDICES).sum().backward()
    trained = sum(parameter.grad is not None for parameter in module.parameters())
    found = [_handed_over(graph_of(m.program)) for m in (recorded, derived)]

    assert [trained, trained] == found
