"""A run on a GPU, tried without one: what it calls is accepted and can be captured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from perfc.costmodels import load_target

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
plan: Any = importlib.import_module("collection.plan")
rehearsal: Any = importlib.import_module("collection.rehearsal")

_CUDA: Any = torch.backends.cuda  # its functions have no types
fakes_gpus = pytest.mark.skipif(
    not _CUDA.is_built(),
    reason="this PyTorch is built without CUDA: make rehearse takes one with it",
)
gpu: Any = importlib.import_module("collection.gpu")
GPU = gpu.device_of(load_target("h100-sxm-80g"))
CAPTURED = {p.model: p for p in plan.planned() if p.runtime == "cudagraph"}
SMALL = {
    "dlrm-default": "dlrm-default:tables=2,rows=100,pooling=3",
    "dlrm-mlperf": "dlrm-mlperf:tables=3,max_rows=100",
    "dlrm-ddp": "dlrm-ddp:tables=2,rows=100",
    "bert-base": "bert-base:layers=1,hidden=16,heads=2,seq=8",
    "gpt2": "gpt2:layers=1,hidden=16,heads=2,seq=8,vocab=20",
    "resnet50": "resnet50:image=32,batch_norm=separate",
    "dcnv2-mlperf": "dcnv2-mlperf:max_rows=10",
}
"""Captured models, small enough for a CPU."""


@fakes_gpus
def test_every_call_is_accepted() -> None:
    """Each family, dtype, phase and algorithm, on operands that only claim a GPU."""
    cases = rehearsal.cases_of(GPU)
    needing = [
        case
        for _, case in cases
        if any(needs(case) for needs in rehearsal.NEEDS_DRIVER.values())
    ]

    assert [] == [*rehearsal.rejected_calls(cases)]
    assert len(cases) - len(needing) > 150


@fakes_gpus
def test_a_call_that_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family whose call does not fit its op is found."""
    family, case = next(
        pair for pair in rehearsal.cases_of(GPU) if pair[1].op == "softmax"
    )

    def wrong(*_: object) -> Callable[[], object]:
        x = torch.empty(2, 3, device="cuda")
        return lambda: torch.mm(x, x)

    softmax: Any = family
    monkeypatch.setattr(softmax.__class__, "prepare", wrong)
    ((told, why),) = rehearsal.rejected_calls([(family, case)])
    assert case == told
    assert why.startswith("RuntimeError: a and b must have same reduction dim")


@fakes_gpus
@pytest.mark.parametrize("model", sorted(CAPTURED))
def test_forward_passes_can_be_captured(model: str) -> None:
    """Nothing waits for the device or copies across."""
    assert [] == rehearsal.forward_on_fake_gpu(CAPTURED[model], GPU)


@pytest.mark.parametrize("model", sorted(CAPTURED))
def test_training_steps_can_be_captured(model: str) -> None:
    """Loss, gradients and SGD read no number either; they are run small, on the CPU."""
    name = CAPTURED[model].name
    setting = plan.Planned(model=SMALL[name], batch=2, mode="training")

    assert [] == rehearsal.step_on_cpu(setting)


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [("adagrad", "waits for the device"), ("rowwise_adagrad", "waits for the device")],
)
def test_what_cannot_be_captured_is_told(optimizer: str, said: str) -> None:
    """Adagrad on sparse gradients reads how many rows there are."""
    setting = plan.Planned(
        model=SMALL["dlrm-ddp"], batch=2, mode="training", optimizer=optimizer
    )

    assert any(said in line for line in rehearsal.step_on_cpu(setting))


@fakes_gpus
def test_copies_across_are_told() -> None:
    """As where tables lie in the host's memory."""
    setting = plan.Planned(model="dlrm-ddp:places=host", batch=2, mode="inference")

    found = rehearsal.forward_on_fake_gpu(setting, GPU)
    assert any("works across cpu, cuda" in line for line in found)
