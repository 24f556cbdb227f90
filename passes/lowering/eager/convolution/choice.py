"""Choice of kernels where a library may take several: those done soonest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfc.costmodels import Target, cost_models, price
from perfc.costmodels.kernels import (
    Floats,
    SplitError,
    column_table,
    configurations,
)
from perfc.costmodels.pricing import price_table
from perfc.ir import Kernel
from perfc.passes.lowering.eager.site import Launch

_HOST_S, _LAUNCH_S = 100e-6, 12e-6
"""What a convolution takes the median host, and each launch of it (the call and T5): a
GEMM that is done before is as good as any other."""

_SURELY = 1 - 1e-9
"""Times as near as this are equal: the first is taken, on any processor."""


def soonest(calls: Sequence[list[Launch]], gpu: Target) -> list[Launch]:
    """Return the launches of one of *calls*, by their time on *gpu* and on the host.

    cuDNN's heuristics and its benchmark put the algorithm first that takes least, in
    any type that is allowed: where layouts are turned for too small a GEMM, not
    that of tensor cores. They do not see the host, which is counted in: for few images
    it is what takes the time, and of what is as soon the fewest launches are best, and
    then the least on the device.

    Raises:
        SplitError: not every configuration of many numbers takes the same call.

    """
    kernels = [launch.kernel for call in calls for launch in call]
    each_s = np.split(
        _seconds(kernels, gpu), np.cumsum([len(call) for call in calls])[:-1]
    )
    chosen = np.zeros(each_s[0].shape[1], dtype=np.intp)
    least_s, least_device_s = np.full((2, len(chosen)), np.inf)
    for number, (call, kernels_s) in enumerate(zip(calls, each_s, strict=True)):
        device_s = kernels_s.sum(axis=0)
        seconds = np.maximum(device_s, _HOST_S + _LAUNCH_S * len(call))
        as_soon = (seconds <= least_s) & (device_s < least_device_s * _SURELY)
        better = as_soon | (seconds < least_s * _SURELY)
        chosen[better] = number
        least_s = np.where(better, seconds, least_s)
        least_device_s = np.where(better, device_s, least_device_s)
    same = chosen == chosen[0]
    if not same.all():
        raise SplitError(same)
    return calls[int(chosen[0])]


def _seconds(kernels: Sequence[Kernel], gpu: Target) -> Floats:
    """Price kernels, in each of their configurations: (kernels, configurations)."""
    count = max(map(configurations, kernels))
    if count == 1:
        return price(kernels, gpu, cost_models()).seconds[:, np.newaxis]
    table, rows = column_table(kernels, [count] * len(kernels))
    return price_table(table, gpu, cost_models()).seconds[np.stack(rows)]
