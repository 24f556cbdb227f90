"""What goes wrong when a model runs for real, in one line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from perfc.frontends.torch import raised_by
from perfc.ir import PerfcError
from perfc.measure.device import Device

_NO_MEMORY = ("DefaultCPUAllocator: can't allocate", "CUDA error: out of memory")
_LONGEST = 300


class RunError(PerfcError):
    """A model does not run in a setting; others may."""


@contextmanager
def explained(device: Device) -> Generator[None]:
    """Turn whatever a model raises into a `RunError` that says what and where."""
    try:
        yield
    except PerfcError as error:
        raise RunError(str(error)) from error
    except Exception as error:
        raise RunError(_problem(error, device)) from error


def _problem(error: Exception, device: Device) -> str:
    said = str(error)
    full = isinstance(error, torch.OutOfMemoryError | MemoryError)
    if full or any(text in said for text in _NO_MEMORY):
        gib = device.memory_bytes / 2**30
        return (
            f"out of memory on {device.name} ({gib:.1f} GiB): a smaller batch may fit"
        )
    if "InvalidCxxCompiler" in said:
        return (
            "torch.compile needs a C++ compiler: install g++, or take --runtime eager"
        )
    if "captur" in said and device.is_cuda:
        return f"cannot be captured as a CUDA graph: {raised_by(error)}"[:_LONGEST]
    return raised_by(error)[:_LONGEST]
