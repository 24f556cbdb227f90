"""Fused attention: query tiles in waves over the SMs, each through its keys.

    t = floor + start + max(waves * (steps * step + fill), bytes / (rate * share))
        + combine, where keys are split
    step = products of a tile of keys / (rate of an SM * share)
        + softmax * exponentials / rate of an SM

A thread block takes a tile of queries of one head through the keys, a tile a step; a
causal mask ends the walk early. Where tiles of queries leave SMs idle, FlashAttention 3
splits the keys over them, and so does every library for decoding (fewer queries than
keys); the parts are combined at the end. A step's products run at a share of the math
mode's peak, and `softmax` of its exponentials are not hidden behind them. The gradients
take five products where forward takes two, at `BACKWARD_RATE` of forward's rate: an
analytic factor, of which no rows were measured. Where thousands of kernels of a GPU
were measured, `attention_residual` corrects the formula.
"""

from __future__ import annotations

import functools

import attrs
import numpy as np

from perfc.costmodels.attention_residual import (
    corrected_second,
    corrected_seconds,
    is_measured,
    measured_rows,
)
from perfc.costmodels.causal import keys_per_tile
from perfc.costmodels.fitted_file import fitted
from perfc.costmodels.gemm import sized
from perfc.costmodels.maths import ARRAYS, FLOATS, Maths, Number
from perfc.costmodels.memory import stream_seconds
from perfc.costmodels.one_signature import OneSignature
from perfc.costmodels.protocol import (
    Estimate,
    Flags,
    Floats,
    KernelTable,
    Priced,
    Provenance,
    Signatures,
    one_of,
)
from perfc.costmodels.target import Target

HEAD_DIMS = (64.0, 96.0, 128.0, 192.0, 256.0)
"""Sizes of heads that kernels are made for; others are padded."""

EXPONENTIALS_PER_CLOCK = 16.0
"""Of an SM (CUDA C++ Programming Guide, throughput of special functions)."""

BACKWARD_FLOPS = 2.5
"""Products of the backward kernel, which computes the scores again, over forward's."""

BACKWARD_RATE = 0.86
"""FlashAttention-2 reaches 63 % of an A100's peak backward and 73 % forward (Dao,
arXiv 2307.08691)."""

TENSOR_MODES = ("bf16", "fp16", "fp8")

_SIZES = ("batch", "heads", "q_len", "kv_len", "head_dim")
_BACKWARD = "backward"


@attrs.frozen(kw_only=True)
class AttentionTiles:
    """How a library cuts the work.

    Attributes:
        narrow_queries: Queries of a tile where heads have up to 96 numbers.
        queries: Where they have more.
        keys: Keys of a step.
        splits: Whether prefill splits its keys over idle SMs.

    """

    narrow_queries: float
    queries: float
    keys: float
    splits: bool


FLASH_2 = AttentionTiles(narrow_queries=128.0, queries=128.0, keys=64.0, splits=False)
FLASH_3 = AttentionTiles(narrow_queries=192.0, queries=128.0, keys=128.0, splits=True)
"""Tiles of queries: `hopper/tile_size.h` of Dao-AILab/flash-attention; of keys, rounded
to what measured rows follow best."""

TILES = {"Hopper": FLASH_3}
"""By architecture; FlashAttention 2 elsewhere."""


@attrs.frozen(kw_only=True)
class AttentionParameters:
    """What the formula needs beside the target.

    Attributes:
        start_s: Added to the target's kernel floor.
        share: Of the peak rate that the products of a step run at.
        softmax: Share of the exponentials' time that products do not hide.
        fill_s: Start and end of a tile of queries.
        combine_s: What splitting the keys costs.
        memory_share: Of the memory rate that the operands are moved at.
        sigma_shared: Relative uncertainty that all kernels share: the formula alone is
            12 % off on its rows; masks and larger heads have none.
        sigma_independent: Relative uncertainty of one kernel.

    """

    start_s: float
    share: float
    softmax: float
    fill_s: float
    combine_s: float
    memory_share: float
    sigma_shared: float = 0.15
    sigma_independent: float = 0.2


EFFICIENT = AttentionParameters(
    start_s=2.0e-6,
    share=0.5,
    softmax=0.5,
    fill_s=2.0e-6,
    combine_s=3.0e-6,
    memory_share=0.7,
    sigma_shared=0.3,
    sigma_independent=0.3,
)
"""fp32: round numbers, not fitted; no measured rows were at hand."""

UNSEEN_SIGMA = 0.3
"""Shared, and of one kernel, on an architecture without rows: H100 and L40S predicted
from each other (`docs/accuracy.md`)."""


@functools.cache
def flash_parameters(architecture: str) -> AttentionParameters:
    """Return the parameters in half precision: of the architecture, or of all."""
    known = fitted("attention")
    return AttentionParameters(**known.get(architecture, known["all"]))


@attrs.frozen
class AttentionModel:
    """Waves of query tiles, each through its keys."""

    name: str = "attention"
    priority: int = 50
    ops: frozenset[str] = frozenset({"attention"})

    def claims(self, kernels: KernelTable, target: Target) -> Flags:
        """Claim attention with sizes, in any math mode that the target has."""
        return np.asarray(sized(kernels.signatures, target, _SIZES), dtype=np.bool_)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        narrow = one_of(kernels.math, TENSOR_MODES)
        flash = flash_parameters(target.device.architecture)
        seconds = attention_seconds(kernels, target, flash)
        if not narrow.all():
            wide_s = attention_seconds(kernels, target, EFFICIENT)
            seconds = np.where(narrow, seconds, wide_s)
        measured = measured_rows(kernels, target)
        if measured.any():
            rows = np.flatnonzero(measured)
            part = kernels.take(rows)
            seconds[rows] = corrected_seconds(seconds[rows], part, target)
        known = target.device.architecture in fitted("attention")
        fitted_here = narrow & (kernels.text("phase") != _BACKWARD) & known
        unseen = np.where(narrow, UNSEEN_SIGMA, EFFICIENT.sigma_shared)
        return Estimate(
            seconds,
            np.where(fitted_here, flash.sigma_shared, unseen),
            np.where(fitted_here, flash.sigma_independent, UNSEEN_SIGMA),
            [self.name] * len(kernels),
            [
                Provenance.FITTED if f else Provenance.ANALYTIC
                for f in fitted_here.tolist()
            ],
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        return one.runs_on(target) and all(map(one.given, _SIZES))

    def estimate_one(self, one: OneSignature, target: Target) -> Priced:
        """Price one kernel."""
        narrow = one.math in TENSOR_MODES
        flash = flash_parameters(target.device.architecture)
        parameters = flash if narrow else EFFICIENT
        seconds = _formula_seconds(one, target, parameters, FLOATS)
        if is_measured(one, target):
            seconds = corrected_second(seconds, one, target)
        known = target.device.architecture in fitted("attention")
        if narrow and known and one.text("phase") != _BACKWARD:
            sigmas = flash.sigma_shared, flash.sigma_independent
            return Priced(seconds, *sigmas, Provenance.FITTED)
        shared = UNSEEN_SIGMA if narrow else EFFICIENT.sigma_shared
        return Priced(seconds, shared, UNSEEN_SIGMA, Provenance.ANALYTIC)


def attention_seconds(
    kernels: KernelTable, target: Target, parameters: AttentionParameters
) -> Floats:
    """Return the duration of each kernel by the formula of this file."""
    return _formula_seconds(kernels.signatures, target, parameters, ARRAYS)


def _formula_seconds(
    kernels: Signatures[Number],
    target: Target,
    parameters: AttentionParameters,
    maths: Maths[Number],
) -> Number:
    device, ceil, where = target.device, maths.ceil, maths.where
    tiles = TILES.get(device.architecture, FLASH_2)
    q_len, kv_len = kernels.param("q_len", 1.0), kernels.param("kv_len", 1.0)
    size = _padded(kernels.param("head_dim", 1.0), maths)
    queries = where(size <= 96, tiles.narrow_queries, tiles.queries)  # noqa: PLR2004
    heads = kernels.param("batch", 1.0) * kernels.param("heads", 1.0)
    blocks = heads * ceil(q_len / queries)
    keys = keys_per_tile(kernels, queries, maths)
    steps = ceil(keys * (1 / tiles.keys))

    splits = maths.least(maths.most(maths.floor(device.sm_count / blocks), 1.0), steps)
    splits = where(tiles.splits | (q_len < kv_len), splits, 1.0)
    waves = blocks * splits / device.sm_count
    waves = where(waves > 4, waves, ceil(waves))  # noqa: PLR2004 - blocks drift
    pairs = queries * tiles.keys
    rate = kernels.peak_flops_per_s(target) * (parameters.share / device.sm_count)
    exponentials_per_s = EXPONENTIALS_PER_CLOCK * device.sm_clock_hz
    step_s = pairs * (4 * size / rate + parameters.softmax / exponentials_per_s)
    busy_s = waves * (ceil(steps / splits) * step_s + parameters.fill_s)
    backward = kernels.text("phase") == _BACKWARD
    busy_s = busy_s * where(backward, BACKWARD_FLOPS / BACKWARD_RATE, 1.0)
    moved_s = stream_seconds(kernels.bytes, target, maths) / parameters.memory_share
    combine_s = where(splits > 1, parameters.combine_s, 0.0)
    around_s = device.kernel_floor_s + parameters.start_s + combine_s
    return around_s + maths.most(busy_s, moved_s)


def _padded(head_dim: Number, maths: Maths[Number]) -> Number:
    """Return the size of heads that a kernel computes; larger ones as they are."""
    padded = head_dim
    for size in reversed(HEAD_DIMS):
        padded = maths.where(head_dim <= size, size, padded)
    return padded


ATTENTION = AttentionModel()
"""The built-in instance."""
