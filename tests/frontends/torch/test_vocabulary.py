"""What `torch.nn`, `torch.nn.functional` and `torch.optim` have can be recorded."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import pytest
import torch
from tests.frontends.torch.torch_vocabulary import FUNCTIONS, OPTIMIZERS, Use, modules
from torch import Tensor, nn, optim
from torch.nn.modules.lazy import LazyModuleMixin

import perfc
from perfc.ir import Graph

MODULES = modules()
NOT_LAYERS = frozenset(
    (
        *("Module", "Container", "Sequential", "ModuleList", "ModuleDict"),
        *("ParameterList", "ParameterDict", "RNNBase", "RNNCellBase", "DataParallel"),
        "NLLLoss2d",  # the old name of NLLLoss
    )
)
"""Classes of `torch.nn` that hold others, or are what others are made of."""


class _Trained(nn.Module):
    """A use whose first tensor of real numbers depends on a parameter."""

    def __init__(self, use: Callable[..., Any]) -> None:
        """Keep what is called."""
        super().__init__()
        self.use = use
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, *args: Any) -> Tensor:
        """Return a sum over the first result."""
        given = list(args)
        place = next((i for i, x in enumerate(args) if x.is_floating_point()), None)
        if place is not None:
            given[place] = given[place] * self.scale.to(given[place].dtype)
        out = self.use(*given)
        while not isinstance(out, Tensor):
            out = out[0]
        return (out * 2).sum()


def _recorded(use: Use) -> Graph:
    called, args = use
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lazy modules are new, kinds of loss are old
        if issubclass(type(called), LazyModuleMixin):
            called(*args)
        program = perfc.from_torch(
            _Trained(called), args, mode="training", loss=lambda out: out
        ).program
    graph = program.classes[0].ops
    assert graph is not None
    return graph


def _unknown(graph: Graph) -> set[object]:
    return {node.attributes.get("op") for node in graph if node.op == "unknown"}


USES = {**MODULES, **FUNCTIONS}


@pytest.mark.parametrize("name", USES)
def test_use(name: str) -> None:
    """Forward and backward are ops that perfc knows."""
    graph = _recorded(USES[name])

    assert "backward" in {node.location.phase for node in graph}
    assert set() == _unknown(graph)


def test_every_module() -> None:
    """Every class of `torch.nn` is used here."""
    kinds = {
        name
        for name, found in vars(nn).items()
        if isinstance(found, type) and found.__name__ == name
        if issubclass(found, nn.Module)
    }
    used = {name.partition("-")[0] for name in MODULES}

    assert kinds - NOT_LAYERS == used


_VARIANTS = ("foreach", "fused", "capturable")


def _variants(name: str) -> list[dict[str, bool]]:
    """Return the options of an optimizer that decide how it steps."""
    known = signature(OPTIMIZERS[name]).parameters
    options = [{option: True} for option in _VARIANTS if option in known]
    loop = [{"foreach": False}] if "foreach" in known else []
    return [{}, *options, *loop]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name: str) -> None:
    """A step in each variant: lists, one kernel, one by one, for a CUDA graph."""
    for options in _variants(name):
        made = partial(OPTIMIZERS[name], **options)
        layers = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
        program = perfc.from_torch(
            layers, torch.zeros(3, 8), mode="training", loss=Tensor.sum, optimizer=made
        ).program
        graph = program.classes[0].ops
        assert graph is not None
        assert "optimizer" in {node.location.phase for node in graph}
        assert set() == _unknown(graph), options


def test_lbfgs() -> None:
    """LBFGS runs the model as often as data ask for: that is said."""
    with pytest.raises(perfc.PerfcError, match="LBFGS runs the model within its step"):
        perfc.from_torch(
            nn.Linear(8, 8),
            torch.zeros(3, 8),
            mode="training",
            optimizer=optim.LBFGS,
        )
