"""Batch norm in training, as cuDNN computes it: a block of threads for each channel.

    t = floor + start + moved / (memory rate * share * x / (x + spread))
    x = channels per SM, four at most: so many blocks of 512 threads an SM holds

A channel that fits in the shared memory of a block is read once; a larger one is read
again after its sums are known. Few channels leave SMs without a block, or with too few
threads to draw what memory gives.

Parameters: `fitted/constants/batch_norm.toml`.
"""

from __future__ import annotations

import attrs
import numpy as np

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Estimate,
    Flags,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Priced,
    Signatures,
    trust,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import as_known

HELD_BYTES = 48 << 10
"""Shared memory of a block, for what it reads of its channel."""

BLOCKS_PER_SM = 4
"""Blocks of 512 threads that an SM runs at most."""


@attrs.frozen(kw_only=True)
class BatchNormRates:
    """What kernels of one library reach.

    Attributes:
        start_s: Added to the target's kernel floor.
        share: Of the memory's rate, where there are enough blocks.
        held_share: The same of kernels that read a channel once.
        spread: Channels per SM at which forward draws half of it.
        spread_backward: The same backward.
        sigma_independent: Scatter of its kernels.
        fitted_on: Compute capabilities of the GPUs that it was fitted on.

    """

    start_s: float
    share: float
    held_share: float
    spread: float
    spread_backward: float
    sigma_independent: float
    fitted_on: frozenset[str]


_CONSTANTS = constants("batch_norm")

VOLTA = BatchNormRates(**_CONSTANTS.table("cudnn_volta"), fitted_on=frozenset({"7.0"}))
"""cuDNN's, up to Ada Lovelace."""

HOPPER = BatchNormRates(
    **_CONSTANTS.table("cudnn_hopper"), fitted_on=frozenset({"9.0"})
)
"""cuDNN's, from Hopper on, where an SM takes more blocks to draw its share."""

NATIVE = BatchNormRates(**_CONSTANTS.table("native"), fitted_on=frozenset({"9.0"}))
"""PyTorch's own, which compute what cuDNN does not: bf16. Two kernels forward."""

RATES = (VOLTA, HOPPER, NATIVE)

_NATIVE_TYPE = "bf16"

_LATER = frozenset({"Hopper", "Blackwell"})


@attrs.frozen
class BatchNormModel:
    """Kernels that normalise by the statistics of their own batch, and their gradients.

    Of a kernel `rows` counts a channel's elements (N * H * W), `cols` the channels.
    """

    name: str = "batch-norm"
    priority: int = 60
    ops: frozenset[str] = frozenset({"batch_norm"})
    sigma_shared: float = _CONSTANTS.number("sigma_shared")

    def claims(self, kernels: KernelTable, target: Target) -> Flags:
        """Claim what computes statistics; with given ones it is an elementwise kernel.

        A CPU has no blocks.
        """
        if target.device.synchronous:
            return np.zeros(len(kernels), dtype=np.bool_)
        found: Flags = kernels.text("kind") == "training"
        return found

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        kinds, at = kernels.kinds
        number = np.array([_rates_number(d, target) for _, d, _ in kinds])[at]
        trusts = [trust(self.sigma_shared, r.fitted_on, target) for r in RATES]
        seconds = np.empty(len(kernels))
        for each, rates in enumerate(RATES):
            if len(rows := np.flatnonzero(number == each)):
                part = kernels.take(rows).signatures
                seconds[rows] = _seconds(part, rates, target, ARRAYS)
        return Estimate(
            seconds,
            np.array([shared for _, shared in trusts])[number],
            np.array([rates.sigma_independent for rates in RATES])[number],
            [self.name] * len(kernels),
            [trusts[int(each)][0] for each in number],
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        training = one.kernel.params.get("kind") == "training"
        return training and not target.device.synchronous

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        rates = RATES[_rates_number(one.kernel.dtype, target)]
        seconds = _seconds(one, rates, target, FLOATS)
        provenance, sigma_shared = trust(self.sigma_shared, rates.fitted_on, target)
        return Priced(seconds, sigma_shared, rates.sigma_independent, provenance)


def _rates_number(dtype: str, target: Target) -> int:
    """Return which of `RATES` kernels of a type have on a target."""
    if dtype == _NATIVE_TYPE:
        return RATES.index(NATIVE)
    later = target.device.architecture in _LATER
    return RATES.index(HOPPER if later else VOLTA)


def _seconds(
    kernels: Signatures[Number],
    rates: BatchNormRates,
    target: Target,
    maths: Maths[Number],
) -> Number:
    channels = maths.most(kernels.param("cols"), 1.0)
    held = kernels.bytes_read / channels <= HELD_BYTES
    moved = kernels.bytes + maths.where(held, 0.0, kernels.bytes_read)
    backward = kernels.text("phase") == "backward"
    spread = maths.where(backward, rates.spread_backward, rates.spread)
    # The shipped GPU's SMs: with more, set by hand, x would fall and time rise.
    blocks = maths.least(channels / as_known(target).device.sm_count, BLOCKS_PER_SM)
    share = maths.where(held, rates.held_share, rates.share)
    share = share * (blocks / (blocks + spread))
    floor_s = target.device.kernel_floor_s + rates.start_s
    return floor_s + moved / (target.device.memory.bytes_per_s * share)


BATCH_NORM = BatchNormModel()
"""The built-in instance."""
