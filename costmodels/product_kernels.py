"""What each kernel of a menu takes for a product, and which is the fastest.

The formulas of `products`, for one product or for arrays of them (`maths`): what is of
machine and kernel is worked out once, what is of the product once for all kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeAlias

import numpy as np

from perfc.costmodels.maths import ARRAYS, FLOATS, Maths, Number
from perfc.costmodels.product_machine import (
    Choice,
    Machine,
    Rates,
    Size,
    mean_width,
)
from perfc.costmodels.protocol import Floats, Indices

_MOST_PARTS = 32
_LEAST_DEPTH = 64
"""Of a split: how many parts, how deep each."""

_PARTIAL_BYTES = 8
"""A part of a split sum is written and read in fp32."""
_SHORT_S, _DECADES = 1e-4, 2.0
"""Products shorter than this run at the boost clock; after so many decades the clock
is what the board sustains."""


class _Work(NamedTuple, Generic[Number]):
    """What belongs to a product whichever kernel computes it; as `Size`."""

    size: Size[Number]
    step_s: Number
    """A step of the depth, of an output at the sheet's rate."""
    write_s: Number
    """To write an output."""
    moved_s: Number
    """Of the bytes that must move, with all SMs."""
    row_bytes: Number
    """Of an operand's row."""
    partial_s: Number
    """To write and read the sums of one part."""


Candidate: TypeAlias = tuple[Number, Number, Number]
"""What one kernel takes for a product to compute, read and load; or each kernel, shape
(kernels, rows). A plain tuple: one with names takes three times as long to make."""

_Option: TypeAlias = tuple[float, int, float | None]
"""What a kernel takes at least, its number in the menu, parts of its sum if cut."""

_SURELY = 1 - 1e-12
"""A least time that rounding cannot have put above the time itself."""

_ENDLESS = (math.inf, math.inf, math.inf)


def best_of_many(sizes: Size[Floats], machine: Machine, *, splits: bool) -> Floats:
    """Return the seconds of each product by its fastest kernel."""
    work, choices = _work(sizes, machine), machine.choices
    tiles = _tiles(sizes, choices)
    found = _candidate(work, choices, machine.rates, tiles, None, ARRAYS)
    total_s, chosen = _best(found)
    extra_s = np.full(len(total_s), machine.start_s)
    rows = np.flatnonzero(total_s > work.moved_s + machine.split_s)
    if splits and len(rows):
        work, tiles = _rows_of(work, rows), tiles[:, rows]
        parts = _parts(work.size.k, choices, machine, tiles)
        found = _candidate(work, choices, machine.rates, tiles, parts, ARRAYS)
        cut_s, cut = _best(found)
        better = np.flatnonzero(cut_s + machine.split_s < total_s[rows])
        extra_s[rows[better]] += machine.split_s
        for times, cut_times in zip(chosen, cut, strict=True):
            times[rows[better]] = cut_times[better]
    seconds: Floats = _overlapped(chosen, machine, ARRAYS) + extra_s
    return seconds


def best_of_one(size: Size[float], machine: Machine, *, splits: bool) -> float:
    """Return the same of one product, without arrays.

    Kernels are tried in the order of what they take at least, which is quickly found,
    until the next one cannot be the fastest.
    """
    work = _work(size, machine)
    batch, m, n, ceil = size.batch, size.m, size.n, math.ceil
    tiles = [
        ceil(m * per_row) * ceil(n * per_column) * batch
        for per_row, per_column in machine.per_tile
    ]
    whole = _uncut(work, machine, tiles)
    best_s, chosen = _first_of(whole, math.inf, work, machine, tiles)
    extra_s = machine.start_s
    below_s = best_s - machine.split_s
    # Two parts at least, whose sums are written and read again.
    if splits and work.moved_s + 2 * work.partial_s < below_s:
        cut = _cuts(work, machine, tiles, below_s)
        cut_s, cut_chosen = _first_of(cut, below_s, work, machine, tiles)
        if cut_chosen is not _ENDLESS and cut_s + machine.split_s < best_s:
            chosen, extra_s = cut_chosen, machine.split_s + machine.start_s
    return _overlapped(chosen, machine, FLOATS) + extra_s


def _first_of(
    options: list[_Option],
    below_s: float,
    work: _Work[float],
    machine: Machine,
    tiles: Sequence[float],
) -> tuple[float, Candidate[float]]:
    """Return what the fastest option takes; of equals it is the first of the menu."""
    best, chosen = (below_s, len(tiles)), _ENDLESS
    options.sort()
    for least_s, number, parts in options:
        if least_s > best[0]:
            break
        choice, count = machine.listed[number], tiles[number]
        found = _candidate(work, choice, machine.rates, count, parts, FLOATS)
        total_s, memory_s, loads_s = found
        if memory_s > total_s:
            total_s = memory_s
        if loads_s > total_s:
            total_s = loads_s
        if (total_s, number) < best:
            best, chosen = (total_s, number), found
    return best[0], chosen


def _uncut(
    work: _Work[float], machine: Machine, tiles: Sequence[float]
) -> list[_Option]:
    """Return the kernels with the sum in one part.

    A kernel takes a round at least, or the time of SMs that are all full, or of bytes
    that its tiles ask for or load.
    """
    rates, moved_s, row_bytes = machine.rates, work.moved_s, work.row_bytes
    deep_s = math.ceil(work.size.k * rates.per_step) * work.step_s
    output_s = work.write_s + (rates.fill_s if rates.stages_again else 0.0)
    per_stream, bounds = rates.per_sm * rates.per_stream, machine.bounds
    found: list[_Option] = []
    for number, count in enumerate(tiles):
        share, least, step, _, load_s = bounds[number]
        rounds = count * share
        least_s = (rounds if rounds > least else least) * (deep_s * step + output_s)
        busy = count * per_stream
        read_s = moved_s / busy if busy < 1 else moved_s
        if read_s > least_s:
            least_s = read_s
        loaded_s = count * row_bytes * load_s
        if loaded_s > least_s:
            least_s = loaded_s
        found.append((least_s * _SURELY, number, None))
    return found


def _cuts(
    work: _Work[float], machine: Machine, tiles: Sequence[float], below_s: float
) -> list[_Option]:
    """Return those that can cut the sum into several parts and may take less."""
    rates, k = machine.rates, work.size.k
    moved_s, partial_s = work.moved_s, work.partial_s
    most = min(k // _LEAST_DEPTH, _MOST_PARTS)
    found: list[_Option] = []
    if most <= 1:
        return found
    step_s = k * rates.per_step * work.step_s
    output_s = work.write_s + (rates.fill_s if rates.stages_again else 0.0)
    for number, count in enumerate(tiles):
        share, least, step, at_once, _ = machine.bounds[number]
        if at_once < 2 * count:
            continue
        parts = min(int(at_once / count), most)
        rounds = count * parts * share
        each_s = step_s / parts * step + output_s
        least_s = (rounds if rounds > least else least) * each_s
        read_s = moved_s + partial_s * parts
        if read_s > least_s:
            least_s = read_s
        least_s *= _SURELY
        if least_s <= below_s:
            found.append((least_s, number, parts))
    return found


def _work(size: Size[Number], machine: Machine) -> _Work[Number]:
    width = mean_width(size)
    return _Work(
        size,
        machine.parameters.k_step / size.peak,
        width * machine.write_s,
        machine.moved_seconds(size),
        size.k * width,
        size.batch * size.m * size.n * (_PARTIAL_BYTES / machine.l2_rate),
    )


def _rows_of(work: _Work[Floats], rows: Indices) -> _Work[Floats]:
    size = Size(*(column[rows] for column in work.size))
    return _Work(size, *(column[rows] for column in work[1:]))


def _tiles(size: Size[Floats], choices: Choice[Floats]) -> Floats:
    tiles: Floats = np.ceil(size.m * choices.per_row)
    tiles = tiles * np.ceil(size.n * choices.per_column)
    tiles *= size.batch
    return tiles


def _parts(
    depth: Floats, choices: Choice[Floats], machine: Machine, tiles: Floats
) -> Floats:
    """Return into how many parts a split cuts the sum: as many as fill the SMs."""
    parts: Floats = np.floor(choices.at_once * machine.sm_count / tiles)
    parts = np.minimum(parts, np.minimum(depth // _LEAST_DEPTH, _MOST_PARTS))
    return np.maximum(parts, 1.0)


def _candidate(  # noqa: PLR0913, PLR0917 - what a formula of six things needs
    work: _Work[Number],
    choice: Choice[Number],
    rates: Rates,
    tiles: Number,
    parts: Number | None,
    maths: Maths[Number],
) -> Candidate[Number]:
    """Return what a kernel takes with the sum in so many parts, or uncut.

    Tiles of an SM run side by side in rounds. An SM with a quarter of the tiles that
    fill it takes more than a quarter of the time of a full one: 0.58, measured with 64
    x 64 tiles on V100, which have one thread for each of its lanes; with two less.
    """
    ceil, floor, least = maths.ceil, maths.floor, maths.least
    size, step_s, write_s, moved_s, row_bytes, partial_s = work
    _, _, _, per_full, full, _, _, steepness, step, tile_loads_s = choice
    per_sm_count, per_step, fill_s, per_stream, stages_again = rates
    blocks, depth = tiles, size.k
    if parts is not None:
        blocks, depth = tiles * parts, size.k / parts
    per_sm = blocks * per_sm_count
    rounds = ceil(per_sm) * per_full
    outputs = floor(rounds) + 1.0
    outputs -= maths.power(outputs - rounds, steepness)
    outputs *= full
    each_s = ceil(depth * per_step) * step_s * step + write_s
    if stages_again:
        compute_s = outputs * (each_s + fill_s)
    else:
        compute_s = outputs * each_s + fill_s * least(outputs, full)
    memory_s = moved_s / least(per_sm * per_stream, 1.0)
    if parts is not None:
        memory_s += partial_s * ((parts > 1) * parts)
    return compute_s, memory_s, tiles * (row_bytes * tile_loads_s)


def _best(found: Candidate[Floats]) -> tuple[Floats, Candidate[Floats]]:
    """Return the least time of each product, and whose it is."""
    compute_s, memory_s, loads_s = found
    total_s = np.maximum(np.maximum(compute_s, memory_s), loads_s)
    best = total_s.argmin(axis=0)
    at = (best, np.arange(len(best)))
    return total_s[at], (compute_s[at], memory_s[at], loads_s[at])


def _overlapped(
    found: Candidate[Number], machine: Machine, maths: Maths[Number]
) -> Number:
    """Return what a kernel takes that computes, reads and loads at the same time."""
    power = machine.parameters.overlap
    compute_s, memory_s, loads_s = found
    compute_s = maths.power(_slowed(compute_s, machine, maths), power)
    memory_s = maths.power(memory_s, power)
    loads_s = maths.power(loads_s, power)
    return maths.power(compute_s + memory_s + loads_s, 1 / power)


def _slowed(compute_s: Number, machine: Machine, maths: Maths[Number]) -> Number:
    """Return how long computing takes at the clock that the board's power allows."""
    if machine.short == machine.late == 1:
        return compute_s
    decades = maths.log10(maths.most(compute_s, _SHORT_S) * (1 / _SHORT_S))
    share = maths.least(decades * (1 / _DECADES), 1.0)
    return compute_s / (maths.power(machine.late, share) * machine.short)
