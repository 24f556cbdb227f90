"""A module like `pynvml`, of one GPU that tells some things and others not."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

UUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


class NVMLError(Exception):
    """As NVML's own."""


def fake_nvml(**answers: object) -> ModuleType:
    """Return a module with these functions `nvmlDeviceGet…`, each of one answer.

    An answer that is an error is raised, one that is callable is called.
    """
    made = ModuleType("pynvml")
    module: Any = made
    module.NVMLError = NVMLError
    module.nvmlInit = lambda: None
    module.nvmlSystemGetDriverVersion = lambda: b"580.95.05"
    module.nvmlDeviceGetHandleByUUID = _by_uuid
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = 1, 2, 0
    for name, answer in answers.items():
        setattr(module, f"nvmlDeviceGet{name}", _function(answer))
    return made


def _by_uuid(uuid: str) -> str:
    if uuid != f"GPU-{UUID}":
        raise NVMLError(uuid)
    return "handle"


def _function(answer: object) -> Callable[..., object]:
    def told(handle: str, *arguments: object) -> object:
        assert handle == "handle"
        if isinstance(answer, Exception):
            raise answer
        return answer(*arguments) if callable(answer) else answer

    return told


def see_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch say that there is a GPU, which it cannot compute on."""
    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        major=9,
        minor=0,
        multi_processor_count=132,
        L2_cache_size=50 << 20,
        total_memory=80 << 30,
        uuid=UUID,
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", {0: properties}.get)
