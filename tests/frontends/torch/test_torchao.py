"""Models that torchao has quantised: recorded, exported, and decomposed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import export, save

import perfc
from perfc import Model
from perfc.passes.graphs import typed

with warnings.catch_warnings():  # of classes that newer PyTorch registers itself
    warnings.simplefilter("ignore")
    _TORCHAO: Any = pytest.importorskip(
        "torchao.quantization", reason="torchao quantises the models"
    )

BATCH, INPUTS, HIDDEN = 64, 512, 1024


def _plain() -> torch.nn.Module:
    layers = (
        torch.nn.Linear(INPUTS, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, INPUTS),
    )
    return torch.nn.Sequential(*layers).bfloat16().eval()


def _quantised(config: str, **options: Any) -> torch.nn.Module:
    made = _plain()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _TORCHAO.quantize_(made, getattr(_TORCHAO, config)(**options))
    return made


_INT4 = vars(torch)["int4"]  # which its types do not have

CONFIGS: dict[str, tuple[dict[str, Any], str, int]] = {
    "Int8WeightOnlyConfig": ({}, "bf16", 8),
    "Int8DynamicActivationInt8WeightConfig": ({}, "i8", 8),
    "Float8WeightOnlyConfig": ({}, "bf16", 8),
    "IntxWeightOnlyConfig": ({"weight_dtype": _INT4}, "bf16", 8),
    "Int8DynamicActivationIntxWeightConfig": ({}, "bf16", 8),
}
"""Options, the type that the first layer's product reads, and the bits that a weight
takes in memory: fewer than 8 are packed for their kernels on a GPU only."""


def _x() -> torch.Tensor:
    return torch.rand(BATCH, INPUTS, dtype=torch.bfloat16)


def _recorded(module: torch.nn.Module, folder: Path) -> Model:
    return perfc.from_torch(module, (_x(),))


def _saved(module: torch.nn.Module, folder: Path) -> Model:
    save(export(module, (_x(),)), folder / "model.pt2")
    return perfc.load(folder / "model.pt2")


def _decomposed(module: torch.nn.Module, folder: Path) -> Model:
    return perfc.from_torch(export(module, (_x(),)).run_decompositions())


@pytest.mark.filterwarnings("ignore")  # of torchao's, and of PyTorch's about it
@pytest.mark.parametrize("read", [_recorded, _saved, _decomposed])
@pytest.mark.parametrize("config", CONFIGS)
def test_quantised_linear_layers(
    config: str, read: Callable[[torch.nn.Module, Path], Model], tmp_path: Path
) -> None:
    """No op is unknown; weights take the bytes that they are stored in."""
    options, _, bits = CONFIGS[config]
    model = read(_quantised(config, **options), tmp_path)
    report = perfc.analyze(model, "h100")
    plain = perfc.analyze(_recorded(_plain(), tmp_path), "h100")
    weights = 2 * INPUTS * HIDDEN
    held = report.memory["parameters_bytes"]

    assert {} == report.coverage["unknown_ops"]
    assert weights * bits // 8 <= held
    assert held < plain.memory["parameters_bytes"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", CONFIGS)
def test_what_is_multiplied(config: str, tmp_path: Path) -> None:
    """Dynamic activations are multiplied in 8 bits, weights alone are converted."""
    options, wanted, _ = CONFIGS[config]
    model = _recorded(_quantised(config, **options), tmp_path)
    graph = model.program.classes[0].ops
    assert graph is not None
    products = [node for node in graph if node.op in ("matmul", "linear")]
    read = {typed(node.operands[0]).dtype.name for node in products}

    assert 2 == len(products)
    assert {wanted} == read


@pytest.mark.filterwarnings("ignore")
def test_layers_are_not_priced_as_they_were(tmp_path: Path) -> None:
    """Weights alone in 8 bits cost eager PyTorch a conversion a layer: it is slower."""
    plain = perfc.analyze(_recorded(_plain(), tmp_path), "h100")
    module = _quantised("Int8WeightOnlyConfig")
    quantised = perfc.analyze(_recorded(module, tmp_path), "h100")

    assert plain.summary["gpu_active_us"] < quantised.summary["gpu_active_us"]


def test_version() -> None:
    """The classes that these tests name are those of the installed version."""
    assert all(hasattr(_TORCHAO, name) for name in CONFIGS)
    assert import_module("torchao").__version__
