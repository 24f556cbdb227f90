"""GEMMs: tiles, waves, split-K, and the bytes they move.

A library picks one kernel of a small menu; the model takes the menu's best:

    t = floor + start + min over tiles, split or not, of |(c, m, l)| + cost of the split
    c = rounds * (2 tile_m tile_n k_split / (rate of an SM * e(tile)) + fill)
    m = bytes / (memory rate * share), or L2's for what L2 still holds
    l = bytes that the tiles load / (L2 rate * share)

`|.|` is a norm: the longest, and a little of the others. The tiles of one SM run
side by side: `rounds` counts full SMs, and an SM that is partly full runs at part of
its rate. A split cuts the summed dimension into as many parts as fill the SMs. `e`
grows with the flops that a tile does per byte it loads. A large GEMM slows down with
time where the board's power does not suffice. Everything else comes from the target's
sheet; parameters are in `fitted/gemm.toml`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import streaming
from perfc.costmodels.constants import constants
from perfc.costmodels.gemm.kernels import best_of_many, best_of_one, fastest_of_many
from perfc.costmodels.gemm.machine import Machine, Size
from perfc.costmodels.gemm.parameters import (
    MOST_PARTS,
    QUANTISED,
    SIMT_MODES,
    TENSOR_KERNELS,
    UNALIGNED,
    UNALIGNED_EFFICIENCY,
    GemmParameters,
    has_own,
    is_wide,
    kernels_of,
    simt_parameters,
    tensor_parameters,
)
from perfc.costmodels.gemm.tiles import (
    BATCHED_TILES,
    FULL_ROUNDS,
    FULL_TILE,
    FULL_TILES,
    NO_BATCHED_ROWS,
    SIMT_TILES,
    TRANSPOSED_TILES,
    Tiles,
    simt_menu,
    tensor_menu,
)
from perfc.costmodels.kernels import ARRAYS, FLOATS, Flags, Floats, Number
from perfc.costmodels.machine import Target

CHUNK = 1024
"""Rows priced at a time: arrays of candidates then stay in a CPU's cache. Four times as
many take a fourth longer."""

NATURAL_WATTS_PER_TFLOPS = constants("gemm").table("natural_watts_per_tflops")
"""Power that fp32 FMAs at the boost clock need, by architecture, for its process.

A board that allows less, as T4 or L4, clocks down under large GEMMs. FMAs that a kernel
does not reach draw nothing: the share of the clock is of the rate that it computes at.
"""

QUANTISED_NUMBERS: Mapping[int, str] = MappingProxyType(
    {TENSOR_KERNELS.index(dtype): scales for dtype, scales in QUANTISED.items()}
)
"""What has a scale, by the number of the kernels."""

TYPICAL_BASE_SHARE = constants("gemm").number("typical_base_share")
"""Share of the boost clock guaranteed where the maker publishes no base clock."""


@attrs.frozen(eq=False)
class Gemms:
    """Sizes of GEMMs C[b,m,n] = A[b,m,k] B[b,k,n], one per row.

    Attributes:
        sizes: Rows b, m, n, k; shape (4, GEMMs).
        bytes: Bytes that must move.
        peak: FLOP/s.
        transposed: Whether one operand is stored transposed.
        across: Whether a matrix is summed across its lines, times a vector.
        biased: Whether the kernel adds a bias.
        own: Number of the kernels on tensor cores that compute it, of `TENSOR_KERNELS`.
        grouped: Whether those of more than one matrix are groups of convolutions, which
            have no kernels of their own as the batches of cuBLAS have.

    """

    sizes: Floats
    bytes: Floats
    peak: Floats
    transposed: NDArray[np.bool_]
    across: NDArray[np.bool_]
    biased: NDArray[np.bool_]
    own: NDArray[np.intp]
    grouped: bool = False

    def __len__(self) -> int:
        return len(self.bytes)

    @property
    def size(self) -> Size[Floats]:
        """Sizes as the formulas read them."""
        b, m, n, k = self.sizes
        return Size(b, m, n, k, self.bytes, self.peak)

    def part(self, rows: slice | NDArray[np.bool_] | NDArray[np.intp]) -> Gemms:
        """Return some of the GEMMs."""
        return Gemms(
            self.sizes[:, rows],
            self.bytes[rows],
            self.peak[rows],
            self.transposed[rows],
            self.across[rows],
            self.biased[rows],
            self.own[rows],
            self.grouped,
        )


class _Kind(NamedTuple):
    """Properties of a GEMM that decide which kernels it has without tensor cores."""

    batched: bool = False
    transposed: bool = False
    fills: bool = False
    biased: bool = False
    any_tile: bool = False


_KINDS = tuple(map(_Kind._make, itertools.product((False, True), repeat=5)))


def simt_seconds(
    gemms: Gemms, target: Target, p: GemmParameters, *, fastest: bool = False
) -> Floats:
    """Return the duration of GEMMs without tensor cores, in seconds.

    A GEMM with a vector is a kernel of its own, which reads the matrix once; a sum
    across the matrix's lines is one of parts, which a second kernel adds up. *fastest*
    asks for the kernel that takes least (`fastest_of_many`).
    """
    # Machines with the shipped parameters are made once per target; those of a fit or
    # of a search for a better GPU differ from call to call.
    shipped = not fastest and p is simt_parameters(wide=is_wide(target))
    seconds = np.empty(len(gemms))
    kinds = np.stack(
        [
            (gemms.sizes[0] > 1) & (not gemms.grouped),
            gemms.transposed,
            _fills(gemms.size, target),
            gemms.biased,
        ]
    )
    # Rows of a kind share a menu of kernels and are priced in one set of arrays.
    for kind in _KINDS:
        if kind.any_tile:
            continue
        rows = (kinds == np.array([kind[:4]]).T).all(axis=0)
        if not rows.any():
            continue
        part = gemms if rows.all() else gemms.part(rows)
        machines = [
            target.once(_SIMT[each])
            if shipped
            else _simt_machine(target, p, each, fastest=fastest)
            for each in _beside(kind, p)
        ]
        # cuBLAS does not split batches: their matrices fill the SMs side by side.
        splits = not kind.batched
        found = [_seconds(part, machine, splits=splits) for machine in machines]
        seconds[rows] = functools.reduce(np.maximum, found)
        if _is_between(kind, target):
            others = kind._replace(any_tile=True)
            small_s = _seconds(
                part, _simt_machine(target, p, others, fastest=fastest), splits=splits
            )
            seconds[rows] = np.sqrt(seconds[rows] * small_s)
    # A GEMV kernel has no tiles to pad: it streams the matrix at the memory's rate.
    # Where the sum runs across rows, each block has a part of every result, which are
    # joined.
    vectors = (gemms.sizes[1] == 1) | (gemms.sizes[2] == 1)
    if vectors.any():
        machine = _simt_machine(target, p, _Kind())
        streamed_s = machine.moved_seconds(gemms.size) + machine.start_s
        seconds[vectors] = np.minimum(seconds, streamed_s)[vectors]
        in_parts = streamed_s + machine.split_s
        seconds[gemms.across] = in_parts[gemms.across]
    return seconds


def tensor_seconds(
    gemms: Gemms, target: Target, p: GemmParameters, *, fastest: bool = False
) -> Floats:
    """Return the duration of GEMMs on tensor cores, in seconds.

    Those of `QUANTISED` types are calls of two kernels, the first of which quantises
    the left operand.
    """
    seconds = np.empty(len(gemms))
    biased = gemms.biased & (p.biased_parts < MOST_PARTS)
    for cut in (False, True):
        rows = biased == cut
        if rows.any():
            part = gemms if rows.all() else gemms.part(rows)
            machines = [
                _tensor_machine(target, p, biased=each, fastest=fastest)
                for each in ((False, True) if cut else (False,))
            ]
            found = [_seconds(part, machine, splits=True) for machine in machines]
            seconds[rows] = functools.reduce(np.maximum, found)
    for number, scales in QUANTISED_NUMBERS.items():
        rows = gemms.own == number
        if rows.any():
            _, m, _, k = gemms.sizes[:, rows]
            seconds[rows] += streaming.quantize_seconds(m, k, scales, target, ARRAYS)
    return seconds


def simt_second(  # noqa: PLR0913 - all say which kernel it is
    size: Size[float],
    target: Target,
    *,
    transposed: bool = False,
    across: bool = False,
    biased: bool = False,
    grouped: bool = False,
) -> float:
    """Return one GEMM's seconds by `simt_seconds` with the shipped parameters."""
    batched = size.batch > 1 and not grouped
    kind = batched, transposed, bool(_fills(size, target)), biased
    machines, between, vectors = target.once(_simt_machines)(kind)
    seconds = 0.0
    for machine in machines:
        seconds = max(seconds, best_of_one(size, machine, splits=not batched))
    if between is not None:
        seconds = math.sqrt(seconds * best_of_one(size, between, splits=False))
    if size.m == 1 or size.n == 1:
        streamed_s = vectors.moved_seconds(size) + vectors.start_s
        seconds = min(seconds, streamed_s)
        if across:
            seconds = streamed_s + vectors.split_s
    return seconds


class _SimtMachines(NamedTuple):
    """Machines that say what one GEMM takes without tensor cores."""

    beside: tuple[Machine, ...]
    """None of which takes longer than it does."""
    between: Machine | None
    """The one whose price it lies between, and theirs."""
    vectors: Machine


def _simt_machines(
    target: Target,
) -> Callable[[tuple[bool, bool, bool, bool]], _SimtMachines]:
    """Return a function that has the machines of `_Kind`s; see `Target.once`."""

    @functools.cache
    def machines_of(kind: tuple[bool, bool, bool, bool]) -> _SimtMachines:
        of = _Kind(*kind)
        beside = _beside(of, simt_parameters(wide=is_wide(target)))
        others = of._replace(any_tile=True)
        return _SimtMachines(
            tuple(target.once(_SIMT[each]) for each in beside),
            target.once(_SIMT[others]) if _is_between(of, target) else None,
            target.once(_SIMT[_Kind()]),
        )

    return machines_of


def tensor_second(
    size: Size[float], target: Target, *, own: int = 0, biased: bool = False
) -> float:
    """Return one GEMM's seconds by `tensor_seconds` with the shipped parameters."""
    seconds = best_of_one(size, target.once(_TENSOR[own, False]), splits=True)
    if biased:
        machine = target.once(_TENSOR[own, True])
        if machine.most_parts < MOST_PARTS:
            seconds = max(seconds, best_of_one(size, machine, splits=True))
    if own in QUANTISED_NUMBERS:
        scales = QUANTISED_NUMBERS[own]
        seconds += streaming.quantize_seconds(size.m, size.k, scales, target, FLOATS)
    return seconds


def _beside(kind: _Kind, p: GemmParameters) -> Sequence[_Kind]:
    """Return kinds none of which takes longer than a GEMM of *kind* does.

    A kernel that adds a bias cuts its sum into fewer parts and does more, so it is not
    sooner: where the best number of parts is small, what fills the SMs is not the best.
    """
    if kind.biased and p.biased_parts < MOST_PARTS:
        return kind, kind._replace(biased=False)
    return (kind,)


def tile_spread(
    size: Size[float], target: Target, *, transposed: bool = False
) -> float:
    """Return the logarithm of a batch's price over that by the other tiles."""
    kind = _Kind(batched=True, transposed=transposed)
    if not _is_unsure(kind, target):
        return 0.0
    large, small = (
        best_of_one(size, target.once(_SIMT[each]), splits=False)
        for each in (kind, kind._replace(any_tile=True))
    )
    return FLOATS.log(large / small) * (0.5 if transposed else 1.0)


def tile_spreads(size: Size[Floats], target: Target, *, transposed: bool) -> Floats:
    """Return `tile_spread` of many batches, shape (rows,)."""
    kind = _Kind(batched=True, transposed=transposed)
    if not _is_unsure(kind, target):
        return np.zeros(len(size.bytes))
    large, small = (
        best_of_many(size, target.once(_SIMT[each]), splits=False)
        for each in (kind, kind._replace(any_tile=True))
    )
    spreads: Floats = np.log(large / small) * (0.5 if transposed else 1.0)
    return spreads


def padded_share(
    size: Size[float], target: Target, *, transposed: bool = False
) -> float:
    """Return how often tiles without tensor cores compute a result, at least."""
    batched = size.batch > 1
    kind = _Kind(batched, transposed, batched and bool(_fills(size, target)))
    menu = simt_menu(_simt_tiles(target, kind))
    tiles = np.ceil(size.m * menu.per_row) * np.ceil(size.n * menu.per_column)
    return float((tiles * menu.area).min() / (size.m * size.n))


def _is_unsure(kind: _Kind, target: Target) -> bool:
    """Whether it is not known which tiles a batch has.

    Rows of large ones are of another chip and one layout, by cuBLAS 12.1. That of CUDA
    13 has small ones on H100: 2,048 x 27 x 27 x 128 take 34 us.
    """
    return kind.batched and target.device.compute_capability in NO_BATCHED_ROWS


def _is_between(kind: _Kind, target: Target) -> bool:
    """Whether a price lies between those by either tiles: no row is of that layout."""
    return kind.transposed and _is_unsure(kind, target)


def _fills(size: Size[Number], target: Target) -> Flags | bool:
    """Whether a batch has many tiles for each SM, so that it has kernels of its own."""
    rows, columns = -(-size.m // FULL_TILE), -(-size.n // FULL_TILE)
    return size.batch * rows * columns > FULL_ROUNDS * target.device.sm_count


def _simt_tiles(target: Target, kind: _Kind) -> Tiles:
    """Return the tiles of the kernels for one kind of GEMMs."""
    architecture = target.device.architecture
    if kind.any_tile:
        return SIMT_TILES
    if not kind.batched:
        own = TRANSPOSED_TILES.get(architecture, SIMT_TILES)
        return own if kind.transposed else SIMT_TILES
    # Of transposed batches there are no rows; traces of V100 have small kernels.
    if kind.transposed and architecture in {"Volta", "Turing"}:
        return SIMT_TILES
    own = BATCHED_TILES.get(architecture, SIMT_TILES)
    return FULL_TILES.get(architecture, own) if kind.fills else own


def _simt_machine(
    target: Target, p: GemmParameters, kind: _Kind, *, fastest: bool = False
) -> Machine:
    # The share of the power of fp32 FMAs that the board allows.
    natural = NATURAL_WATTS_PER_TFLOPS.get(target.device.architecture)
    if natural is None:
        fma_power = 1.0
    else:
        full_watts = (
            natural * p.tile_efficiency * target.device.flops_per_s["fp32"] * 1e-12
        )
        fma_power = float(min(1.0, target.watts / full_watts))
    power = fma_power**p.power_exponent
    short = power**p.short_power
    menu = simt_menu(_simt_tiles(target, kind))
    parts = p.biased_parts if kind.biased else MOST_PARTS
    return Machine(target, p, menu, 1.0, short, power / short, fastest, parts)


def _shipped_simt_machine(target: Target, kind: _Kind) -> Machine:
    return _simt_machine(target, simt_parameters(wide=is_wide(target)), kind)


_SIMT = {kind: functools.partial(_shipped_simt_machine, kind=kind) for kind in _KINDS}
"""Functions that make the machine of each kind of GEMMs."""


def _tensor_machine(
    target: Target, p: GemmParameters, *, biased: bool = False, fastest: bool = False
) -> Machine:
    device = target.device
    if fastest:  # a faster clock by hand computes no less at the same power
        p = attrs.evolve(p, power_exponent=min(p.power_exponent, 1.0))
    boost = device.sm_clock_hz / device.tensor_clock_hz
    power = _base_share(target) ** p.power_exponent
    short = power**p.short_power
    late = min(power, short * device.tensor_clock_hz / device.sm_clock_hz)
    menu = tensor_menu(device.compute_capability)
    parts = min(p.most_parts, p.biased_parts if biased else MOST_PARTS)
    return Machine(target, p, menu, boost, short, late / short, fastest, parts)


def own_parameters(target: Target, own: int) -> GemmParameters:
    """Return the shipped parameters of some of `TENSOR_KERNELS`, by their number."""
    kernels, architecture = TENSOR_KERNELS[own], kernels_of(target)
    found = tensor_parameters(architecture, kernels)
    if kernels != UNALIGNED or has_own(architecture, kernels):
        return found
    efficiency = UNALIGNED_EFFICIENCY[architecture]
    return attrs.evolve(found, tile_efficiency=efficiency)


def _shipped_tensor_machine(target: Target, own: int, biased: bool) -> Machine:
    return _tensor_machine(target, own_parameters(target, own), biased=biased)


_TENSOR = {
    (own, biased): functools.partial(_shipped_tensor_machine, own=own, biased=biased)
    for own in range(len(TENSOR_KERNELS))
    for biased in (False, True)
}
"""Functions that make the machine of each kind of kernels on tensor cores."""


def shipped_machine(target: Target, mode: str, own: int) -> Machine:
    """Return the machine of single GEMMs with the shipped parameters.

    Args:
        target: The GPU.
        mode: Math mode.
        own: Number of the kernels, of `TENSOR_KERNELS`; of no matter for `SIMT_MODES`.

    """
    simt = mode in SIMT_MODES
    return target.once(_SIMT[_Kind()] if simt else _TENSOR[own, False])


def _seconds(gemms: Gemms, machine: Machine, *, splits: bool) -> Floats:
    """Return the seconds of each GEMM, so many at a time."""
    chosen = fastest_of_many if machine.fastest else best_of_many
    parts = [
        chosen(gemms.part(slice(at, at + CHUNK)).size, machine, splits=splits)
        for at in range(0, len(gemms), CHUNK)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])


def _base_share(target: Target) -> float:
    """Return the base clock over the boost clock: what the board's power sustains."""
    device = target.device
    if device.base_clock_hz is None:
        return TYPICAL_BASE_SHARE
    return min(1.0, device.base_clock_hz / device.sm_clock_hz)
