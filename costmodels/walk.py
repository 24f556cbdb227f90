"""Kernels that walk a sequence step by step, a barrier after each.

    t = floor + max(bytes and flops, steps * turns * rounds * cycles / clock)

One block has threads for all that a step works out, or takes several turns; a round is
as many blocks as there are SMs. PyTorch's `topk` is one, too: a block for a slice walks
through the digits of its elements, two bits at a time, then writes what it has found
(`gatherTopK` and `radixSelect` in `aten/src/ATen/native/cuda`). Further turns wait for
their loads alone.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Estimate,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Priced,
    Provenance,
    Signatures,
    uniform_estimate,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.pricing import lower_bound, lower_bound_of_one

_CONSTANTS = constants("walk")

CYCLES = _CONSTANTS.number("step_cycles")
"""Clocks of a step."""

THREADS = 1024
"""Most threads of a block."""

SELECT = "topk"

_WARP = 32
_LOAD_CYCLES = _CONSTANTS.number("load_cycles")
"""Clocks of a load from L2."""


@attrs.frozen
class WalkModel:
    """Latency of each step, or what the roofline says of all of them."""

    name: str = "walk"
    priority: int = 50
    ops: frozenset[str] = frozenset({"ctc_walk", SELECT})
    efficiency: float = _CONSTANTS.number("efficiency")
    sigma_shared: float = _CONSTANTS.number("sigma_shared")
    sigma_independent: float = _CONSTANTS.number("sigma_independent")

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim all with steps on a GPU; a CPU walks without barriers."""
        steps: NDArray[np.bool_] = kernels.param("steps") > 0
        return steps & (not target.device.synchronous)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows: `rows` sequences of `cols` values at each of `steps`."""
        walked_s = _walked_seconds(kernels.signatures, target, ARRAYS)
        moved_s = lower_bound(kernels, target) / self.efficiency
        return uniform_estimate(
            target.device.kernel_floor_s + np.maximum(walked_s, moved_s),
            model=self.name,
            provenance=Provenance.ANALYTIC,
            sigma_shared=self.sigma_shared,
            sigma_independent=self.sigma_independent,
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        return one.given("steps") and not target.device.synchronous

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        walked_s = _walked_seconds(one, target, FLOATS)
        moved_s = lower_bound_of_one(one, target) / self.efficiency
        seconds = target.device.kernel_floor_s + max(walked_s, moved_s)
        own = self.sigma_independent
        return Priced(seconds, self.sigma_shared, own, Provenance.ANALYTIC)


def _walked_seconds(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    device = target.device
    selects = kernels.op == SELECT
    columns = maths.most(kernels.param("cols"), maths.where(selects, _WARP, 1.0))
    turns = maths.ceil(columns / THREADS)
    loads = 1 + (turns - 1) * (_LOAD_CYCLES / CYCLES)
    turns = maths.where(selects, loads, turns)
    threads = maths.least(maths.power(2.0, maths.ceil(maths.log2(columns))), THREADS)
    together = maths.most(THREADS // threads, 1.0)
    rounds = maths.ceil(kernels.param("rows") / together / device.sm_count)
    steps = kernels.param("steps") * turns * rounds
    return steps * CYCLES / device.sm_clock_hz


WALK = WalkModel()
"""The built-in instance."""
