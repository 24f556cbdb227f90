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
        said = str(error)
        full = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if full or any(text in said for text in _NO_MEMORY):
            gib = device.memory_bytes / 2**30
            message = (
                f"out of memory on {device.name} ({gib:.1f} GiB): a smaller batch may "
                "fit"
            )
        elif "InvalidCxxCompiler" in said:
            message = (
                "torch.compile needs a C++ compiler: install g++, or take --runtime "
                "eager"
            )
        elif "captur" in said and device.is_cuda:
            message = f"cannot be captured as a CUDA graph: {raised_by(error)}"[
                :_LONGEST
            ]
        else:
            message = raised_by(error)[:_LONGEST]
        raise RunError(message) from error
