"""What Python and the dispatcher take on a CPU: rows of `host_overhead`.

A chain of modules on one number is all host. What an op of it takes is timed alone;
the difference is the time between two ops, T1: of a module's call going forward, of the
autograd engine going backward, both in one distribution.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from perfc.ir import Record
from perfc.ir.support import US
from perfc.measure.device import Device
from perfc.measure.timing import percentiles
from perfc.measurements import Measurement

_LENGTH = 50
"""Modules of the chain."""

_REPEATS = 60
_WARM_UP = 10
_CALLS = 50
"""Calls of one op between two readings of the clock."""


def dispatch_rows(device: Device) -> list[Measurement]:
    """Return T1, and T0 of an op that launches nothing, in a few tenths of a second."""
    one = torch.zeros(1)
    start, gradient = torch.zeros(1, requires_grad=True), torch.ones(1)
    chain = nn.Sequential(*(nn.ReLU() for _ in range(_LENGTH)))
    op_us, _, _ = percentiles(_samples_us(lambda: torch.relu(one), _CALLS))
    views_us = _samples_us(lambda: one.view(1), _CALLS)

    def forward() -> object:
        with torch.no_grad():
            return chain(one)

    def step() -> object:
        return chain(start).backward(gradient)

    times_us = [
        *(us / _LENGTH - op_us for us in _samples_us(forward)),
        *(us / (2 * _LENGTH) - op_us for us in _samples_us(step)),
    ]
    return [_row(device, "T1", times_us), _row(device, "T0", views_us)]


def _samples_us(call: Callable[[], object], times: int = 1) -> list[float]:
    """Return the microseconds of a call, each the mean of so many in a row."""
    samples: list[float] = []
    for _ in range(_WARM_UP + _REPEATS):
        start = time.perf_counter()
        for _ in range(times):
            call()
        samples.append((time.perf_counter() - start) / times * US)
    return samples[_WARM_UP:]


def _row(device: Device, type_: str, samples_us: list[float]) -> Measurement:
    middle, low, high = percentiles([max(us, 0.0) for us in samples_us])
    return Measurement(
        target=device.target,
        op="host_overhead",
        dtype="",
        params=Record({"type": type_, "op": ""}),
        latency_us=middle,
        timing="host",
        source=device.source,
        n=len(samples_us),
        p10_us=low,
        p90_us=high,
    )
