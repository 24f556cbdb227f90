"""Seconds of each kernel of a menu for a GEMM, and which kernel is the fastest.

The formulas of `formula`: what is of machine and kernel is worked out once, what is of
the GEMM once for all kernels. The best of a menu is found in arrays for many
GEMMs, and for one by trying kernel after kernel, which takes a third of the time.
"""

from __future__ import annotations

import math
from math import ceil, floor, sqrt
from typing import TypeAlias

import numpy as np

from perfc.costmodels.gemm.machine import Choices, Machine, Size, mean_width
from perfc.costmodels.kernels import ARRAYS, FLOATS, Floats, Maths, Number

_LEAST_DEPTH = 64
"""Least depth of a part of a split."""

_PARTIAL_BYTES = 8
"""A part of a split sum is written and read in fp32."""
_SHORT_S = 1e-4
"""GEMMs shorter than this run at the boost clock."""


Work: TypeAlias = tuple[Number, ...]
"""Terms of a GEMM's time that do not depend on the kernel; shaped as `Size`.

Seconds of a step of the depth, of an output at the sheet's rate; to write an output; of
the bytes that must move, with all SMs; bytes of an operand's row; seconds to write and
read the sums of one part. A plain tuple, as `Candidate`.
"""

Candidate: TypeAlias = tuple[Number, Number, Number]
"""Seconds that one kernel takes for a GEMM to compute, read and load; or those of each
kernel, shape (kernels, rows). A plain tuple: one with names takes three times as long
to make."""

_ENDLESS = (math.inf, math.inf, math.inf)

_EVEN_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of parts that a split cuts the sum into where any may be chosen."""


def fastest_of_many(sizes: Size[Floats], machine: Machine, *, splits: bool) -> Floats:
    """Return the seconds of each GEMM by the kernel, and split, that take least.

    `best_of_many` is as libraries choose, on the whole: by the longest of what
    overlaps, at the boost clock, and a split fills all SMs. Here a better machine is
    never slower: what is chosen on one can be chosen on it, and takes it no longer. A
    clock that the board's power holds down slows nothing but the arithmetic.
    """
    work, choices = work_of(sizes, machine), machine.choices
    tiles = _tiles(sizes, choices)
    found = _candidates(sizes.k, work, machine, tiles, None, slowed=True)
    seconds: Floats = _together(found, machine, ARRAYS).min(axis=0)
    # Any number of parts up to the one that fills the SMs may be chosen: were it that
    # one alone, a GPU with more SMs would have to cut finer and could become slower.
    most = _parts(sizes.k, choices, machine, tiles) if splits else np.ones(1)
    for parts in _EVEN_PARTS:
        possible = most >= parts
        rows = np.flatnonzero(possible.any(axis=0))
        if not len(rows):  # the numbers ascend, so larger ones are not possible either
            break
        some = tuple(column[rows] for column in work)
        each = np.full((1, 1), float(parts))
        cut = _candidates(
            sizes.k[rows], some, machine, tiles[:, rows], each, slowed=True
        )
        cut_s = _together(cut, machine, ARRAYS) + machine.split_s
        # All kernels are priced at once, also those for which there are too many parts.
        cut_s[~possible[:, rows]] = math.inf
        seconds[rows] = np.minimum(seconds[rows], cut_s.min(axis=0))
    return seconds + machine.start_s


def best_of_many(sizes: Size[Floats], machine: Machine, *, splits: bool) -> Floats:
    """Return the seconds of each GEMM by its fastest kernel."""
    work, choices = work_of(sizes, machine), machine.choices
    tiles = _tiles(sizes, choices)
    found = _candidates(sizes.k, work, machine, tiles, None)
    total_s, chosen = _best(found)
    extra_s = np.full(len(total_s), machine.start_s)
    # A split moves the same bytes and more, so it cannot win where the best whole
    # kernel is within the cost of a split of the time that the bytes take.
    rows = np.flatnonzero(total_s > work[2] + machine.split_s)
    if splits and len(rows):
        tiles, depth = tiles[:, rows], sizes.k[rows]
        parts = _parts(depth, choices, machine, tiles)
        some = tuple(column[rows] for column in work)
        found = _candidates(depth, some, machine, tiles, parts)
        cut_s, cut = _best(found)
        better = np.flatnonzero(cut_s + machine.split_s < total_s[rows])
        extra_s[rows[better]] += machine.split_s
        for times, cut_times in zip(chosen, cut, strict=True):
            times[rows[better]] = cut_times[better]
    seconds: Floats = overlapped(chosen, machine, ARRAYS) + extra_s
    return seconds


def best_of_one(size: Size[float], machine: Machine, *, splits: bool) -> float:
    """Return the seconds of one GEMM by its fastest kernel, without arrays."""
    work = work_of(size, machine)
    _, _, moved_s, _, partial_s = work
    chosen = _fastest(size, work, machine, math.inf, cut=False)
    best_s, extra_s, split_s = max(chosen), machine.start_s, machine.split_s
    # Two parts at least, whose sums are written and read again.
    if splits and moved_s + 2 * partial_s < best_s - split_s:
        cut = _fastest(size, work, machine, best_s - split_s, cut=True)
        if max(cut) + split_s < best_s:
            chosen, extra_s = cut, split_s + extra_s
    return overlapped(chosen, machine, FLOATS) + extra_s


def _fastest(
    size: Size[float], work: Work[float], machine: Machine, best_s: float, *, cut: bool
) -> Candidate[float]:
    """Return the seconds of the fastest kernel, of equals the first, if below *best_s*.

    The formulas are those of `_candidates`, with the sum cut or whole. A kernel is
    given up as soon as another one is known to be faster.
    """
    batch, m, n, k, _, _ = size
    step_s, write_s, moved_s, row_bytes, partial_s = work
    per_sm_count, per_step, fill_s, per_stream, stages_again = machine.rates
    output_s = write_s + fill_s if stages_again else write_s
    deep_s, most = (
        ceil(k * per_step) * step_s,
        min(k // _LEAST_DEPTH, machine.most_parts),
    )
    added_s, best = 0.0, _ENDLESS
    # Pricing one GEMM is the hot path of searches. Bounds that cost a few operations
    # skip most kernels without changing which one is found.
    for step_least, least, share, kernel in machine.listed:
        # The bound holds for all later kernels, too. Not for a split: its depth, and
        # with it `deep_s`, is another one for each kernel.
        if not cut and deep_s * step_least + output_s * least > best_s:
            break
        per_row, per_column, at_once, per_full, full, steep, step, load_s = kernel
        blocks = tiles = ceil(m * per_row) * ceil(n * per_column) * batch
        if cut:
            # Parts are for SMs that would be idle; more of them would only queue up.
            parts = min(int(at_once * machine.sm_count / tiles), most)
            if parts <= 1:
                continue
            blocks, added_s = tiles * parts, partial_s * parts
            deep_s = ceil(k / parts * per_step) * step_s
        each_s = deep_s * step + output_s
        if blocks * share * each_s > best_s:  # as if tiles filled all SMs evenly
            continue
        per_sm = blocks * per_sm_count
        rounds = ceil(per_sm) * per_full
        outputs = floor(rounds) + 1.0
        empty = outputs - rounds
        # As `risen`, whose call takes as long as half of the rest.
        if steep == 3.0:  # noqa: PLR2004
            missing = empty * empty * empty
        elif steep == 1.5:  # noqa: PLR2004
            missing = empty * sqrt(empty)
        else:
            missing = empty if steep == 1.0 else risen(empty, steep, FLOATS)
        outputs = (outputs - missing) * full
        compute_s = outputs * each_s
        # Kernels that load ahead fill their pipeline for the first tiles of an SM only.
        if not stages_again:
            compute_s += fill_s * (min(full, outputs))
        # Few blocks have too few loads in flight to draw the memory's whole rate.
        busy = per_sm * per_stream
        memory_s = (moved_s / busy if busy < 1 else moved_s) + added_s
        loads_s = tiles * (row_bytes * load_s)
        if compute_s < best_s and memory_s < best_s and loads_s < best_s:
            best = compute_s, memory_s, loads_s
            best_s = max(best)
    return best


def work_of(size: Size[Number], machine: Machine) -> Work[Number]:
    """Return the terms of a GEMM's time that no kernel decides."""
    batch, m, n, k, _, peak = size
    width = mean_width(size)
    return (
        machine.parameters.k_step / peak,
        width * machine.write_s,
        machine.moved_seconds(size),
        k * width,
        batch * m * n * (_PARTIAL_BYTES / machine.l2_rate),
    )


def _tiles(size: Size[Floats], choices: Choices) -> Floats:
    tiles: Floats = np.ceil(size.m * choices.per_row)
    tiles = tiles * np.ceil(size.n * choices.per_column)
    tiles *= size.batch
    return tiles


def _parts(depth: Floats, choices: Choices, machine: Machine, tiles: Floats) -> Floats:
    """Return into how many parts a split cuts the sum: as many as fill the SMs."""
    parts: Floats = np.floor(choices.at_once * machine.sm_count / tiles)
    parts = np.minimum(parts, np.minimum(depth // _LEAST_DEPTH, machine.most_parts))
    return np.maximum(parts, 1.0)


def _candidates(  # noqa: PLR0913 - all are of one formula
    k: Floats,
    work: Work[Floats],
    machine: Machine,
    tiles: Floats,
    parts: Floats | None,
    *,
    slowed: bool = False,
) -> Candidate[Floats]:
    """Return the seconds of each kernel with the sum in so many parts, or uncut.

    Tiles of an SM run side by side in rounds. An SM with a quarter of the tiles that
    fill it takes more than a quarter of the time of a full one: 0.58, measured with 64
    x 64 tiles on V100, which have one thread for each of its lanes; with two less.
    """
    step_s, write_s, moved_s, row_bytes, partial_s = work
    per_sm_count, per_step, fill_s, per_stream, stages_again = machine.rates
    choices, blocks, depth = machine.choices, tiles, k
    if parts is not None:
        blocks, depth = tiles * parts, k / parts
    per_sm = blocks * per_sm_count
    rounds = np.ceil(per_sm) * choices.per_full
    outputs: Floats = np.floor(rounds) + 1.0
    outputs -= _missing(outputs - rounds, choices.steepness)
    outputs *= choices.full
    each_s = np.ceil(depth * per_step) * step_s * choices.step
    if slowed:
        each_s = _slowed(outputs * each_s, machine, ARRAYS) / outputs
    each_s = each_s + (write_s + fill_s if stages_again else write_s)
    compute_s = outputs * each_s
    if not stages_again:
        compute_s += fill_s * np.minimum(outputs, choices.full)
    memory_s = moved_s / np.minimum(per_sm * per_stream, 1.0)
    if parts is not None:
        memory_s += partial_s * ((parts > 1) * parts)
    return compute_s, memory_s, tiles * (row_bytes * choices.loads_s)


def _missing(empty: Floats, steepness: Floats) -> Floats:
    """Return the outputs that SMs so empty miss; of equal kernels by steepness."""
    exponents = set(steepness[:, 0].tolist())
    if len(exponents) == 1:
        return risen(empty, exponents.pop(), ARRAYS)
    found = np.empty_like(empty)
    for exponent in exponents:
        rows = steepness[:, 0] == exponent
        found[rows] = risen(empty[rows], exponent, ARRAYS)
    return found


def risen(base: Number, exponent: float, maths: Maths[Number]) -> Number:
    """Return a power: by products and roots, which is soonest, for usual exponents."""
    if exponent == 1.0:
        return base
    if exponent == 1.5:  # noqa: PLR2004
        return base * maths.sqrt(base)
    if exponent in {3.0, 6.0}:
        cube = base * base * base
        return cube if exponent == 3.0 else cube * cube  # noqa: PLR2004
    return maths.power(base, exponent)


def _best(found: Candidate[Floats]) -> tuple[Floats, Candidate[Floats]]:
    """Return the least time of each GEMM, and the terms of the kernel that has it."""
    compute_s, memory_s, loads_s = found
    total_s = np.maximum(np.maximum(compute_s, memory_s), loads_s)
    best = total_s.argmin(axis=0)
    at = (best, np.arange(len(best)))
    return total_s[at], (compute_s[at], memory_s[at], loads_s[at])


def overlapped(
    found: Candidate[Number], machine: Machine, maths: Maths[Number]
) -> Number:
    """Return the seconds of a kernel whose clock the board's power may hold down."""
    compute_s, memory_s, loads_s = found
    compute_s = _slowed(compute_s, machine, maths)
    return _together((compute_s, memory_s, loads_s), machine, maths)


def _together(
    found: Candidate[Number], machine: Machine, maths: Maths[Number]
) -> Number:
    """Return the seconds of a kernel that computes, reads and loads at once."""
    compute_s, memory_s, loads_s = found
    exponent = machine.parameters.overlap
    if exponent == 6.0:  # noqa: PLR2004 - as all fits say; roots are soonest
        compute_s = compute_s * compute_s * compute_s
        memory_s = memory_s * memory_s * memory_s
        loads_s = loads_s * loads_s * loads_s
        squares = compute_s * compute_s + memory_s * memory_s + loads_s * loads_s
        return maths.cbrt(maths.sqrt(squares))
    compute_s, memory_s, loads_s = (risen(part, exponent, maths) for part in found)
    return maths.power(compute_s + memory_s + loads_s, 1 / exponent)


def _slowed(compute_s: Number, machine: Machine, maths: Maths[Number]) -> Number:
    """Return how long computing takes at the clock that the board's power allows."""
    short, late = machine.short, machine.late
    if short == late == 1:
        return compute_s
    if not maths.any(compute_s > _SHORT_S):
        return compute_s / short
    longer = maths.log(maths.most(compute_s, _SHORT_S) * (1 / _SHORT_S))
    cooled = maths.exp(longer * machine.cooling)
    return compute_s / (maths.most(cooled, late) * short)
