"""What NVML says of clock and power while something runs, every 50 ms."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

from collection.nvml import Nvml
from collection.tables import Cell, Field

Sample: TypeAlias = tuple[Cell, ...]
"""Seconds since the begin, and a cell for each field."""

FIELDS = (
    Field("sm_clock_mhz", "float"),
    Field("mem_clock_mhz", "float"),
    Field("watts", "float"),
    Field("watts_now", "float"),
    Field("joules", "float"),
    Field("temperature_c", "float"),
    Field("throttle_reasons", "int"),
)
SAMPLE_SECONDS = 0.05

_MILLI = 1e-3
_POWER_INSTANT = 186
"""NVML's field of the power now: `PowerUsage` is the mean of a second on new boards."""


@contextmanager
def sampling(nvml: Nvml | None, samples: list[Sample]) -> Generator[None]:
    """Add what NVML says every 50 ms, until the end of the block."""
    if nvml is None:
        yield
        return
    over = threading.Event()
    begin, joules = time.monotonic(), _joules(nvml)

    def sample() -> None:
        for number in itertools.count(1):
            at = time.monotonic() - begin
            spent = _joules(nvml)
            used = None if spent is None or joules is None else spent - joules
            told = (*_clocks(nvml), *_power(nvml), used, *_state(nvml))
            samples.append((at, *told))
            left = begin + number * SAMPLE_SECONDS - time.monotonic()
            if over.wait(max(left, 0.0)):
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _clocks(nvml: Nvml) -> Sample:
    sm, memory = nvml.constant("NVML_CLOCK_SM", 1), nvml.constant("NVML_CLOCK_MEM", 2)
    return nvml.ask("ClockInfo", sm), nvml.ask("ClockInfo", memory)


def _power(nvml: Nvml) -> Sample:
    """Return the power as the driver smooths it, and now, in watts."""
    usual = nvml.ask("PowerUsage")
    field = nvml.constant("NVML_FI_DEV_POWER_INSTANT", _POWER_INSTANT)
    fields = nvml.ask("FieldValues", [field])
    now: float | None = None
    if fields is not None and fields[0].nvmlReturn == 0:
        now = fields[0].value.uiVal * _MILLI
    return None if usual is None else float(usual) * _MILLI, now


def _joules(nvml: Nvml) -> float | None:
    """Return the joules that the board has used since its driver was loaded."""
    told = nvml.ask("TotalEnergyConsumption")
    return None if told is None else float(told) * _MILLI


def _state(nvml: Nvml) -> Sample:
    """Return the temperature, and a bit for each reason why the clock is no higher."""
    reasons = nvml.ask("CurrentClocksEventReasons")
    if reasons is None:  # before CUDA 12.2
        reasons = nvml.ask("CurrentClocksThrottleReasons")
    sensor = nvml.constant("NVML_TEMPERATURE_GPU", 0)
    return nvml.ask("Temperature", sensor), reasons
