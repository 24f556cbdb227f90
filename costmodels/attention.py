"""Fused attention: the products at a share of the peak, in waves over the SMs.

    t = floor + start + waves * tile flops / (rate of one SM * share)

A thread block takes a tile of queries of one head through all keys. It runs at a
share of the peak of its math mode; few keys do not fill its pipeline. Bytes stay
behind the products but for short sequences, which the bound covers. The gradients
take five products where forward takes two, at `BACKWARD_RATE` of forward's rate: an
analytic factor, of which no rows were measured.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.causal import executed_share
from perfc.costmodels.gemm import sized
from perfc.costmodels.memory import stream_seconds
from perfc.costmodels.protocol import Estimate, Floats, KernelTable, Provenance
from perfc.costmodels.target import Target

QUERY_TILE = 128
"""Queries of a thread block (FlashAttention-2 and the CUTLASS kernel)."""

BACKWARD_FLOPS = 2.5
"""Products of the backward kernel, which computes the scores again, over forward's."""

BACKWARD_RATE = 0.86
"""FlashAttention-2 reaches 63 % of an A100's peak backward and 73 % forward (Dao,
arXiv 2307.08691)."""

TENSOR_MODES = frozenset({"fp16", "bf16", "fp8"})


@attrs.frozen(kw_only=True)
class AttentionParameters:
    """What the formula needs beside the target.

    Attributes:
        start_s: Added to the target's kernel floor.
        share: Of the peak rate that long sequences reach.
        half_keys: Keys at which half of that share is reached.
        memory_share: Of the memory rate that the operands are moved at.
        sigma_shared: Relative uncertainty that all kernels share.
        sigma_independent: Relative uncertainty of one kernel.

    """

    start_s: float
    share: float
    half_keys: float
    memory_share: float
    sigma_shared: float
    sigma_independent: float


FLASH = AttentionParameters(
    start_s=7e-6,
    share=0.5,
    half_keys=8.0,
    memory_share=0.9,
    sigma_shared=0.15,
    sigma_independent=0.25,
)
"""Half precision: FlashAttention 3 on H100 and 2 on L40S, not causal, inside CUDA
graphs (aiconfigurator's vLLM rows, Apache-2.0), 2026-11, by
`benchmarks/fit_kernels.py`; half of the rows held out. PyTorch's own kernel is
FlashAttention 2: on H100 expect it slower than this.
"""

EFFICIENT = AttentionParameters(
    start_s=2.0e-6,
    share=0.5,
    half_keys=64.0,
    memory_share=0.7,
    sigma_shared=0.3,
    sigma_independent=0.3,
)
"""fp32: round numbers, not fitted; no measured rows were at hand."""


@attrs.frozen
class AttentionModel:
    """Waves of query tiles, each through all keys."""

    name: str = "attention"
    priority: int = 50
    ops: frozenset[str] = frozenset({"attention"})
    flash: AttentionParameters = FLASH
    efficient: AttentionParameters = EFFICIENT

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim attention with sizes, in any math mode that the target has."""
        names = ("batch", "heads", "q_len", "kv_len", "head_dim")
        return sized(kernels, target, names)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        narrow = np.array([k.math in TENSOR_MODES for k in kernels.kernels])
        seconds = np.where(
            narrow,
            attention_seconds(kernels, target, self.flash),
            attention_seconds(kernels, target, self.efficient),
        )
        shared = (self.flash.sigma_shared, self.efficient.sigma_shared)
        own = (self.flash.sigma_independent, self.efficient.sigma_independent)
        fitted = narrow & ~_is_backward(kernels)
        return Estimate(
            seconds,
            np.where(fitted, *shared),
            np.where(fitted, *own),
            [self.name] * len(kernels),
            [Provenance.FITTED if f else Provenance.ANALYTIC for f in fitted.tolist()],
        )


def _is_backward(kernels: KernelTable) -> NDArray[np.bool_]:
    phases = [kernel.params.get("phase") for kernel in kernels.kernels]
    return np.array([phase == "backward" for phase in phases], dtype=np.bool_)


def attention_seconds(
    kernels: KernelTable, target: Target, parameters: AttentionParameters
) -> Floats:
    """Return the duration of each kernel by the formula of this file."""
    q_len, kv_len = kernels.param("q_len", 1.0), kernels.param("kv_len", 1.0)
    heads = kernels.param("batch", 1.0) * kernels.param("heads", 1.0)
    blocks = heads * np.ceil(q_len / QUERY_TILE)
    flops = 4 * kernels.param("head_dim", 1.0) * kv_len * QUERY_TILE
    flops = flops * executed_share(kernels)
    flops = np.where(
        _is_backward(kernels), flops * BACKWARD_FLOPS / BACKWARD_RATE, flops
    )
    sms = target.device.sm_count
    waves = np.where(blocks > 4 * sms, blocks / sms, np.ceil(blocks / sms))
    share = parameters.share * kv_len / (kv_len + parameters.half_keys)
    rate = kernels.peak_flops_per_s(target) / sms * share
    moved = stream_seconds(kernels.bytes, target) / parameters.memory_share
    floor_s = target.device.kernel_floor_s + parameters.start_s
    seconds: Floats = floor_s + np.maximum(waves * flops / rate, moved)
    return seconds


ATTENTION = AttentionModel()
"""The built-in instance."""
