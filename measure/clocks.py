"""Clock and throttling of a GPU, where its driver tells."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
import time
from typing import Any

import attrs

from perfc.measure.device import Device, gpu_properties

SLOWDOWN_REASONS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""NVML's clock event reasons that are a slowdown: power cap, hardware slowdown, thermal
(software and hardware), power brake. Idle, application clocks and sync boost are none.
"""

_SMI_SECONDS = 2.0
"""`nvidia-smi` is a process: asked no more often."""

_SMI_TIMEOUT_S = 5.0


@attrs.frozen
class Clock:
    """One look at a device; None where nobody tells."""

    sm_clock_mhz: float | None = None
    throttled: bool | None = None


class ClockReader:
    """Reads the clock by NVML (`nvidia-ml-py`) or `nvidia-smi`, if one is there."""

    def __init__(self, device: Device) -> None:
        """Find out who tells."""
        self._nvml: Any = None
        self._handle: Any = None
        self._smi = shutil.which("nvidia-smi") if device.is_cuda else None
        self._last = Clock()
        self._read_at = float("-inf")
        if device.is_cuda:
            self._open_nvml()

    def _open_nvml(self) -> None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(_uuid())
            self._nvml = nvml

    def read(self) -> Clock:
        """Return the clock now; call it while the device is at work."""
        if self._nvml is not None:
            nvml, clock, reasons = self._nvml, None, None
            name = "nvmlDeviceGetCurrentClocks{}Reasons"  # since CUDA 12.2, and before
            reasons_of = getattr(nvml, name.format("Event"), None)
            reasons_of = reasons_of or getattr(nvml, name.format("Throttle"))
            with contextlib.suppress(nvml.NVMLError):
                clock = float(
                    nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)
                )
                reasons = int(reasons_of(self._handle))
            return Clock(clock, None if reasons is None else _slowed(reasons))
        if self._smi is None:
            return Clock()
        now = time.monotonic()
        if now - self._read_at > _SMI_SECONDS:
            self._last, self._read_at = self._by_smi(self._smi), now
        return self._last

    def _by_smi(self, command: str) -> Clock:
        for reasons in ("event", "throttle"):  # by the age of the driver
            query = f"--query-gpu=clocks.sm,clocks_{reasons}_reasons.active"
            arguments = [command, "-i", _uuid(), query, "--format=csv,noheader,nounits"]
            with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
                return _parsed(_output(arguments))
        self._smi = None  # it will not tell the next time either
        return Clock()


def _output(arguments: list[str]) -> str:
    done = subprocess.run(  # noqa: S603 - our own arguments
        arguments, capture_output=True, check=True, text=True, timeout=_SMI_TIMEOUT_S
    )
    return done.stdout


def _parsed(line: str) -> Clock:
    """Read `1980, 0x0000000000000004`: the clock in MHz, and why it is no higher."""
    mhz, reasons = line.strip().split(", ")
    return Clock(float(mhz), _slowed(int(reasons, 16)))


def _uuid() -> str:
    return f"GPU-{gpu_properties().uuid}"


def _slowed(reasons: int) -> bool:
    return bool(reasons & SLOWDOWN_REASONS)
