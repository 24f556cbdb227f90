"""Choice of kernels where a library may take several: those done soonest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfc.costmodels import Target, cost_models, price
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
    """
    least, found = (math.inf, math.inf), calls[0]
    for call in calls:
        kernels = [launch.kernel for launch in call]
        device_s = float(price(kernels, gpu, cost_models()).seconds.sum())
        seconds = max(device_s, _HOST_S + _LAUNCH_S * len(call))
        as_soon = seconds <= least[0] and device_s < least[1] * _SURELY
        if as_soon or seconds < least[0] * _SURELY:
            least, found = (seconds, device_s), call
    return found
