"""NVIDIA's management library through `nvidia-ml-py`, where it is there and answers."""

from __future__ import annotations

import importlib
from typing import Any

import attrs
import torch


@attrs.frozen
class Nvml:
    """The library, and the GPU that PyTorch computes on."""

    _library: Any
    _handle: Any

    def ask(self, name: str, *arguments: object) -> Any:
        """Return the answer of the GPU to `nvmlDeviceGet<name>`; None without one."""
        return self._told(f"nvmlDeviceGet{name}", self._handle, *arguments)

    def system(self, name: str) -> Any:
        """Return the answer to `nvmlSystemGet<name>`; None without one."""
        return self._told(f"nvmlSystemGet{name}")

    def constant(self, name: str, default: int) -> int:
        """Return a constant of the library, which older ones may lack."""
        return int(getattr(self._library, name, default))

    def _told(self, name: str, *arguments: object) -> Any:
        function = getattr(self._library, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except (self._library.NVMLError, TypeError, ValueError):
            return None  # other boards, drivers and versions have other functions


def open_nvml() -> Nvml | None:
    """Return the library and the first GPU of PyTorch; None without either."""
    if not torch.cuda.is_available():
        return None
    try:
        library: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
        return Nvml(library, _handle(library))
    except (library.NVMLError, OSError):
        return None


def _handle(library: Any) -> Any:
    """Find the GPU by what it calls itself: PyTorch may see fewer, in another order."""
    cuda: Any = torch.cuda
    uuid = cuda.get_device_properties(0).uuid
    return library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
