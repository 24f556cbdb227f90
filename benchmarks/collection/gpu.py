"""A GPU as PyTorch would find it, from the sheet of its target."""

from __future__ import annotations

from perfc.costmodels import Target
from perfc.measure.device import Device

_DTYPES = ("fp32", "fp16", "tf32", "bf16", "fp8")


def device_of(target: Target) -> Device:
    """Return the device of a target whose machine is not there."""
    gpu = target.device
    return Device(
        kind="cuda",
        target=target.name,
        name=gpu.name,
        driver="",
        dtypes=tuple(dtype for dtype in _DTYPES if dtype in gpu.flops_per_s),
        memory_bytes=gpu.memory.usable_bytes,
        cache_bytes=gpu.l2.capacity_bytes,
    )
