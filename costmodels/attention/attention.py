"""Fused attention: query tiles in waves over the SMs, each through its keys.

    t = floor + start + max(waves * (steps * step + fill), bytes / (rate * share))
        + combine, where keys are split
    step = matmuls of a tile of keys / (rate of an SM * share)
        + softmax * exponentials / rate of an SM

A thread block takes a tile of queries of one head through the keys, a tile a step; a
causal mask ends the walk early. A step's matmuls run at a share of the math mode's
peak, idle rows of a tile included, and `softmax` of its exponentials are not hidden
behind them. Where tiles of queries leave SMs idle, FlashAttention 3 splits the keys
over them, and so does version 2 for fewer queries than keys; the parts are combined at
the end. Few queries (decoding) have smaller tiles, and the steps of all heads are
spread over SMs where that is sooner; one query of grouped heads is a tile of theirs.

PyTorch's memory-efficient kernel (`algorithm` efficient: masks; fp32; before Ampere)
never splits the keys. Its blocks wait for each tile of keys and of values, those of one
SM at once, so that a few long walks leave most of a GPU idle. From Ampere on it takes
three matmuls in TF32 for one of fp32.

PyTorch's own flash attention (`algorithm` flash) is version 2 on Hopper, too, where
rows were measured of version 3.

The gradients take five matmuls where forward takes two, at `BACKWARD_RATE` of
forward's rate: an analytic factor, of which no rows were measured. Where thousands of
kernels of a GPU were measured, `attention_residual` corrects the formula.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Generic, NamedTuple

import attrs
import numpy as np

from perfc.costmodels.attention import residual
from perfc.costmodels.attention.efficient import (
    AttentionParameters,
    efficient_kinds,
    efficient_parameters,
)
from perfc.costmodels.attention.lower_bound import attention_bound_s
from perfc.costmodels.attention.tiles import (
    EFFICIENT_TILES,
    FLASH_1_TIME,
    FLASH_2,
    WIDE_MODES,
    AttentionTiles,
    flash_tiles,
    fp32_flops_per_s,
    is_efficient,
    is_first,
    is_newest,
    padded,
)
from perfc.costmodels.constants import constants
from perfc.costmodels.embedding import LOAD_LATENCY_S
from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.gemm import sized
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Estimate,
    Flags,
    Floats,
    IntervalGroup,
    KernelTable,
    Maths,
    Number,
    OneGroup,
    OneSignature,
    Priced,
    Provenance,
    Signatures,
    keys_per_tile,
    one_of,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import imagined, is_imagined
from perfc.costmodels.streaming import stream_seconds

_CONSTANTS = constants("attention")

EXPONENTIALS_PER_CLOCK = _CONSTANTS.number("exponentials_per_clock")
"""Exponentials of an SM per clock."""

BACKWARD_FLOPS = 5 / 2
"""Matmuls of the backward kernel, which computes the scores again, over forward's."""

BACKWARD_RATE = _CONSTANTS.number("backward_rate")
"""Share of the peak that the backward kernel reaches, over the share of forward."""

_SIZES = ("batch", "heads", "q_len", "kv_len", "head_dim")
_BACKWARD = "backward"


UNSEEN_SIGMA = _CONSTANTS.number("sigma_unseen")
"""Shared, and of one kernel, on an architecture without rows."""


_OLDER_SHARE = _CONSTANTS.number("older_share")
"""Share of Hopper's peak at which FlashAttention 2 computes matmuls.

It knows none of Hopper's asynchronous instructions.
"""


@functools.cache
def older_parameters() -> AttentionParameters:
    """Return the parameters of version 2 where others use version 3; not fitted."""
    return AttentionParameters(
        **fitted("attention")["all"] | {"share": _OLDER_SHARE},
        sigma_shared=UNSEEN_SIGMA,
        sigma_independent=UNSEEN_SIGMA,
    )


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

    def lower_bound(self, kernels: KernelTable, target: Target) -> Floats:
        """Return a lower bound of each kernel, without what a mask hides."""
        return attention_bound_s(kernels.signatures, target, ARRAYS)

    def lower_bound_of_one(self, one: OneSignature, target: Target) -> float:
        """Return a lower bound of one kernel, without what a mask hides."""
        return attention_bound_s(one, target, FLOATS)

    def interval_groups(
        self, kernels: KernelTable, target: Target
    ) -> Iterator[IntervalGroup]:
        """Yield kernels of sizes that were measured; others are like none of them."""
        yield IntervalGroup(("",), residual.measured_rows(kernels, target))

    def interval_group_of_one(
        self, one: OneSignature, target: Target
    ) -> OneGroup | None:
        """Return the group of one kernel, if its size was measured."""
        return OneGroup(("",)) if residual.is_measured(one, target) else None

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        return imagined(self._known, _fastest, kernels, target)

    def _known(self, kernels: KernelTable, target: Target) -> Estimate:
        efficient = np.asarray(is_efficient(kernels.signatures, target))
        older = ~np.asarray(is_newest(kernels.signatures, target))
        architecture = target.device.architecture
        flash = flash_parameters(architecture)
        seconds = _by_kernel(kernels, target, fastest=False)
        measured = residual.measured_rows(kernels, target)
        if measured.any():
            rows = np.flatnonzero(measured)
            part = kernels.take(rows)
            seconds[rows] = residual.corrected_seconds(seconds[rows], part, target)
        known = architecture in fitted("attention")
        forward = kernels.text("phase") != _BACKWARD
        first = np.asarray(is_first(kernels.signatures, target))
        fitted_here = ~efficient & ~older & ~first & forward & known
        shared = np.where(fitted_here, flash.sigma_shared, UNSEEN_SIGMA)
        own = np.where(fitted_here, flash.sigma_independent, UNSEEN_SIGMA)
        for chosen, parameters in _efficient_rows(kernels, target):
            shared[chosen] = parameters.sigma_shared
            own[chosen] = parameters.sigma_independent
        return Estimate(
            seconds,
            shared,
            own,
            [self.name] * len(kernels),
            [
                Provenance.FITTED if f else Provenance.ANALYTIC
                for f in fitted_here.tolist()
            ],
        )

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        return one.runs_on(target) and all(map(one.given, _SIZES))

    def estimate_one(self, one: OneSignature, target: Target) -> Priced | None:
        """Price one kernel, on a known GPU."""
        if is_imagined(target):
            return None
        architecture = target.device.architecture
        if is_efficient(one, target):
            wide, backward = map(bool, efficient_kinds(one))
            own = efficient_parameters(target, wide=wide, backward=backward)
            seconds = _formula_seconds(one, target, own, EFFICIENT_TILES, FLOATS)
            sigmas = own.sigma_shared, own.sigma_independent
            return Priced(seconds, *sigmas, Provenance.ANALYTIC)
        flash, tiles = flash_parameters(architecture), flash_tiles(target.device)
        first = is_first(one, target)
        if first or not is_newest(one, target):
            if not is_newest(one, target):
                flash, tiles = older_parameters(), FLASH_2
            seconds = _formula_seconds(one, target, flash, tiles, FLOATS)
            seconds *= FLASH_1_TIME if first else 1.0
            return Priced(seconds, UNSEEN_SIGMA, UNSEEN_SIGMA, Provenance.ANALYTIC)
        seconds = _formula_seconds(one, target, flash, tiles, FLOATS)
        fitted_here = measured = residual.is_measured(one, target)
        if measured:
            seconds = residual.corrected_second(seconds, one, target)
        elif architecture in fitted("attention"):
            fitted_here = one.text("phase") != _BACKWARD
        if fitted_here:
            sigmas = flash.sigma_shared, flash.sigma_independent
            return Priced(seconds, *sigmas, Provenance.FITTED)
        return Priced(seconds, UNSEEN_SIGMA, UNSEEN_SIGMA, Provenance.ANALYTIC)


def _fastest(kernels: KernelTable, target: Target) -> Floats:
    return _by_kernel(kernels, target, fastest=True)


def _by_kernel(kernels: KernelTable, target: Target, *, fastest: bool) -> Floats:
    """Return the formula's seconds with the parameters of the kernel that runs."""
    signatures = kernels.signatures
    flash = flash_parameters(target.device.architecture)
    tiles = flash_tiles(target.device)
    seconds = _formula_seconds(
        signatures, target, flash, tiles, ARRAYS, fastest=fastest
    )
    older = ~np.asarray(is_newest(signatures, target))
    others = [(older, older_parameters(), FLASH_2)]
    others += [(*each, EFFICIENT_TILES) for each in _efficient_rows(kernels, target)]
    for other, parameters, own in others:
        if other.any():
            other_s = _formula_seconds(
                signatures, target, parameters, own, ARRAYS, fastest=fastest
            )
            seconds = np.where(other, other_s, seconds)
    first = np.asarray(is_first(signatures, target))
    return np.where(first, FLASH_1_TIME * seconds, seconds)


def _efficient_rows(
    kernels: KernelTable, target: Target
) -> Iterator[tuple[Flags, AttentionParameters]]:
    """Yield which kernels are memory-efficient ones, and their parameters, by kind."""
    efficient = np.asarray(is_efficient(kernels.signatures, target))
    wide, backward = map(np.asarray, efficient_kinds(kernels.signatures))
    for kind in itertools.product((False, True), repeat=2):
        rows = efficient & (wide == kind[0]) & (backward == kind[1])
        yield rows, efficient_parameters(target, wide=kind[0], backward=kind[1])


def attention_seconds(
    kernels: KernelTable, target: Target, parameters: AttentionParameters
) -> Floats:
    """Return the duration of each kernel by flash attention's formula."""
    tiles = flash_tiles(target.device)
    return _formula_seconds(kernels.signatures, target, parameters, tiles, ARRAYS)


class _Blocks(NamedTuple, Generic[Number]):
    """Blocks that a kernel is cut into, each of a tile of queries through its keys."""

    queries: Number
    """Queries of a head, or of all heads that share keys."""
    walks: Number
    """Number of heads, or of groups of them."""
    kv_heads: Number
    kv_len: Number
    narrow: Flags | bool
    """Whether heads are as narrow as those with tiles of their own."""
    rows: Number
    """Queries of a tile."""
    keys: Number
    """Keys of a step."""
    seen: Number
    """Keys that a tile walks through."""
    steps: Number
    """In which it does."""
    number: Number
    """Number of blocks."""
    row_s: Number
    """Seconds of a step for one query of a tile, on one SM."""
    fill_s: Number
    """Start and end of a block."""


def _formula_seconds(  # noqa: PLR0913 - all are of one formula
    kernels: Signatures[Number],
    target: Target,
    parameters: AttentionParameters,
    tiles: AttentionTiles,
    maths: Maths[Number],
    *,
    fastest: bool = False,
) -> Number:
    blocks = _blocks(kernels, target, parameters, tiles, maths)
    # Memory is a bound beside the compute of the blocks, not a part of it: loads of the
    # next step overlap with the products of this one.
    read_s = stream_seconds(kernels.bytes, target, maths)
    moved_s, sms = read_s / parameters.memory_share, target.device.sm_count
    # The memory-efficient kernel loads nothing ahead and never splits keys.
    if tiles.waits:
        found = maths.most(_waiting_seconds(blocks, sms, tiles, maths), moved_s)
    else:
        busy_s, splits = _split_seconds(blocks, sms, tiles, maths)
        combine_s = maths.where(splits > 1, parameters.combine_s, 0.0)
        found = maths.most(busy_s, moved_s) + combine_s
        if fastest:  # which need not split
            whole_s = _whole_seconds(blocks, sms, maths)
            found = maths.least(found, maths.most(whole_s, moved_s))
        # Few queries, as in decoding, have a kernel of their own that spreads keys over
        # the SMs. Pricing it takes as long as all of the above, so it is left out where
        # nothing needs it.
        few = blocks.queries <= tiles.few_queries
        if maths.any(few):
            few_s = _few_seconds(blocks, read_s, sms, parameters, tiles, maths)
            found = maths.where(few, few_s, found)
    return target.device.kernel_floor_s + parameters.start_s + found


def _blocks(
    kernels: Signatures[Number],
    target: Target,
    parameters: AttentionParameters,
    tiles: AttentionTiles,
    maths: Maths[Number],
) -> _Blocks[Number]:
    where, ceil, param = maths.where, maths.ceil, kernels.param
    q_len, heads = param("q_len", 1.0), param("heads", 1.0)
    queries, walks, kv_heads = q_len, heads, heads
    if maths.any(shared := kernels.given("kv_heads")):
        kv_heads = where(shared, param("kv_heads"), heads)
        # One query of all heads that share keys is a tile of flash attention's.
        grouped = (q_len == 1) & (kv_heads < heads) & (tiles.few_queries > 0)
        queries = where(grouped, heads / kv_heads, q_len)
        walks = where(grouped, kv_heads, heads)
    size = padded(param("head_dim", 1.0), maths)
    narrow = size <= tiles.narrow_size
    rows = where(narrow, tiles.narrow[0], tiles.wide[0])
    keys = where(narrow, tiles.narrow[1], tiles.wide[1])
    seen = keys_per_tile(kernels, rows, maths)
    number = param("batch", 1.0) * walks * ceil(queries / rows)

    device = target.device
    # The peak rate of the instructions that compute the matmuls.
    peak = kernels.peak_flops_per_s(target)
    if not tiles.waits:
        flops_per_s = peak
    else:
        wide = one_of(kernels.math, WIDE_MODES)
        flops_per_s = maths.where(wide, fp32_flops_per_s(target), peak)
    rate = flops_per_s * (parameters.share / device.sm_count)
    softmax_s = parameters.softmax / (EXPONENTIALS_PER_CLOCK * device.sm_clock_hz)
    backward = kernels.text("phase") == _BACKWARD
    factor = where(backward, BACKWARD_FLOPS / BACKWARD_RATE, 1.0)
    row_s = keys * (4 * size / rate + softmax_s) * factor
    fill_s, kv_len = parameters.fill_s * factor, param("kv_len", 1.0)
    steps = ceil(seen / keys)
    return _Blocks(  # by position: names take 1 us more, of 30 for one kernel
        queries,
        walks,
        kv_heads,
        kv_len,
        narrow,
        rows,
        keys,
        seen,
        steps,
        number,
        row_s,
        fill_s,
    )


def _waiting_seconds(
    blocks: _Blocks[Number], sms: int, tiles: AttentionTiles, maths: Maths[Number]
) -> Number:
    """Return how long SMs are busy whose blocks wait for each step's loads.

    Those of one SM take turns to compute, and wait at the same time.
    """
    turns = maths.ceil(blocks.number / (sms * tiles.together))
    waits_s = blocks.steps * (tiles.waits * LOAD_LATENCY_S)
    each_s = blocks.steps * blocks.rows * blocks.row_s + blocks.fill_s
    busy_s = _waves(blocks.number / sms, maths) * each_s
    return maths.most(busy_s, turns * (each_s + waits_s))


def _split_seconds(
    blocks: _Blocks[Number], sms: int, tiles: AttentionTiles, maths: Maths[Number]
) -> tuple[Number, Number]:
    """Return how long SMs are busy, and into how many parts a block's keys are split.

    Over SMs that are idle; without `tiles.splits` only for fewer queries than keys.
    """
    most, least, ceil = maths.most, maths.least, maths.ceil
    queries, steps = blocks.queries, blocks.steps
    # A split uses SMs that a single wave would leave idle; each part needs one step at
    # least.
    splits = least(most(maths.floor(sms / blocks.number), 1.0), steps)
    if not tiles.splits:
        splits = maths.where(queries < blocks.kv_len, splits, 1.0)
    walked = ceil(steps / splits)
    if not tiles.splits:  # no sooner than as many keys as queries, which are not split
        walked = most(walked, ceil(least(queries, blocks.seen) / blocks.keys))
    # Every part starts and ends as a block does, so the fill is not divided.
    waves = _waves(blocks.number * splits / sms, maths)
    return waves * (walked * blocks.rows * blocks.row_s + blocks.fill_s), splits


def _few_seconds(  # noqa: PLR0913, PLR0917 - all are of one formula
    blocks: _Blocks[Number],
    read_s: Number,
    sms: int,
    parameters: AttentionParameters,
    tiles: AttentionTiles,
    maths: Maths[Number],
) -> Number:
    """Return the seconds of few queries: a block each, or all steps spread over SMs.

    All steps but the first are loaded while others compute.
    """
    most, ceil, steps = maths.most, maths.ceil, blocks.steps
    own, kv_heads = blocks.queries * blocks.walks, blocks.kv_heads
    first = own + kv_heads * maths.least(blocks.kv_len, blocks.keys)
    first = first / (own + kv_heads * blocks.kv_len)
    moved_s = read_s * (1 + (1 / parameters.memory_share - 1) * first)
    whole_s = most(_whole_seconds(blocks, sms, maths), moved_s)
    rows = maths.where(blocks.narrow, tiles.few_rows[0], tiles.few_rows[1])
    spread_s = ceil(blocks.number * steps / sms) * rows * blocks.row_s
    spread_s = spread_s + ceil(blocks.number / sms) * blocks.fill_s
    spread_s = most(spread_s, moved_s) + parameters.combine_s
    return maths.where(steps > 1, maths.least(whole_s, spread_s), whole_s)


def _whole_seconds(blocks: _Blocks[Number], sms: int, maths: Maths[Number]) -> Number:
    """Return how long SMs are busy with blocks that are not split."""
    each_s = blocks.steps * blocks.rows * blocks.row_s + blocks.fill_s
    return _waves(blocks.number / sms, maths) * each_s


def _waves(full: Number, maths: Maths[Number]) -> Number:
    """Return the waves that blocks take which would fill so many; many drift."""
    return maths.where(full > 4, full, maths.ceil(full))  # noqa: PLR2004


ATTENTION = AttentionModel()
"""The built-in instance."""
