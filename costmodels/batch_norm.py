"""Batch norm in training, as cuDNN computes it: a block of threads for each channel.

    t = floor + start + moved / (memory rate * share * x / (x + spread))
    x = channels per SM, four at most: so many blocks of 512 threads an SM holds

A channel that fits in the shared memory of a block is read once; a larger one is read
again after its sums are known. Few channels leave SMs without a block, or with too few
threads to draw what memory gives.

The parameters are fitted to the 24 sizes of ResNet-50's training on V100 in fp32 (a
public Kineto trace of the profiler's tensorboard plugin, PyTorch 1.9, batch 32; kernels
`bn_fw_tr_1C11_…` and `bn_bw_1C11_…`): 5.5 % root mean square, 19 % the largest. The
kernels of PyTorch 2.3 take 2 to 10 % longer in the trace of HolisticTraceAnalysis.
"""

from __future__ import annotations

import attrs
import numpy as np

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
    uniform_estimate,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import as_known

HELD_BYTES = 48 << 10
"""Shared memory of a block, for what it reads of its channel."""

BLOCKS_PER_SM = 4
"""Of 512 threads."""


@attrs.frozen
class BatchNormModel:
    """Kernels that normalise by the statistics of their own batch, and their gradients.

    Of a kernel the `rows` are the numbers of a channel, and the `cols` the channels.
    """

    name: str = "batch-norm"
    priority: int = 60
    ops: frozenset[str] = frozenset({"batch_norm"})
    start_s: float = 2.0e-6
    """Added to the target's kernel floor."""
    share: float = 0.88
    """Of the memory's rate, where there are enough blocks."""
    held_share: float = 0.646
    """The same of kernels that read a channel once."""
    spread: float = 0.134
    """Channels per SM at which forward draws half of it."""
    spread_backward: float = 0.319
    sigma_shared: float = 0.1
    sigma_independent: float = 0.1
    fitted_on: frozenset[str] = frozenset({"7.0"})
    """Compute capabilities of the GPUs that the parameters were fitted on."""

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
        provenance, sigma_shared = trust(self.sigma_shared, self.fitted_on, target)
        return uniform_estimate(
            self._seconds(kernels.signatures, target, ARRAYS),
            model=self.name,
            provenance=provenance,
            sigma_shared=sigma_shared,
            sigma_independent=self.sigma_independent,
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        training = one.kernel.params.get("kind") == "training"
        return training and not target.device.synchronous

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        seconds = self._seconds(one, target, FLOATS)
        provenance, sigma_shared = trust(self.sigma_shared, self.fitted_on, target)
        return Priced(seconds, sigma_shared, self.sigma_independent, provenance)

    def _seconds(
        self, kernels: Signatures[Number], target: Target, maths: Maths[Number]
    ) -> Number:
        channels = maths.most(kernels.param("cols", 1.0), 1.0)
        held = kernels.bytes_read / channels <= HELD_BYTES
        moved = kernels.bytes + maths.where(held, 0.0, kernels.bytes_read)
        backward = kernels.text("phase", "forward") == "backward"
        spread = maths.where(backward, self.spread_backward, self.spread)
        # Of more SMs than it was measured with none takes from the others.
        blocks = maths.least(channels / as_known(target).device.sm_count, BLOCKS_PER_SM)
        share = maths.where(held, self.held_share, self.share)
        share = share * (blocks / (blocks + spread))
        floor_s = target.device.kernel_floor_s + self.start_s
        return floor_s + moved / (target.device.memory.bytes_per_s * share)


BATCH_NORM = BatchNormModel()
"""The built-in instance."""
