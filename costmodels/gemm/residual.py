"""What measured GEMMs of one GPU say beyond the model of `formula`.

A library's choice of kernel for each size is no formula. Where thousands of GEMMs of
a GPU were measured, a small network says by which factor they differ from the model:
two layers of tanh over the sizes, what the model says of them, and how well they fill
tiles and waves. It is used for that GPU and others of its chip (as many SMs of the same
compute capability) and that type: on other chips such corrections made things worse.
Sizes beyond some times those measured are corrected as those.

Weights are in `fitted/gemm_residual.npz`, written by `benchmarks/fit.py --what
gemms` from aiconfigurator's rows (Apache-2.0; CUDA graphs; bf16: sglang 0.5.10,
others: the libraries that its tables name) and from NeuSight's (MIT; fp32; event pairs
whose kernel the host's call does not hide; torch 2.1), 2026-11. All rows of them: how
far off it is on sizes that it has not seen, networks say that lack those
(`benchmarks/training/cross_fit.py`). Those that are farther off than the model on
another session or board, or on sizes of layers, are left out
(`benchmarks/corrections.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from operator import le
from typing import Any

import attrs
import numpy as np

from perfc.costmodels import fitted_files
from perfc.costmodels.constants import constants
from perfc.costmodels.gemm.formula import Gemms
from perfc.costmodels.gemm.machine import Size, mean_width
from perfc.costmodels.gemm.parameters import NO_NETWORK
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Flags,
    Floats,
    Indices,
    KernelTable,
    Maths,
    Number,
    OneSignature,
)
from perfc.costmodels.machine import SAME_KERNELS, Target
from perfc.costmodels.sheets import load_target, nominal

RESIDUAL_FILE = fitted_files.FITTED_FOLDER / "gemm_residual.npz"
"""Weights by target, type of the rows and layer."""

_CONSTANTS = constants("gemm")

SIGMA_SHARED = _CONSTANTS.number("sigma_corrected_shared")
SIGMA_INDEPENDENT = _CONSTANTS.number("sigma_corrected_independent")
"""Uncertainty of GEMMs that are corrected."""

REACH = _CONSTANTS.number("reach")
"""How much larger than measured a size may be.

The network has seen what the rows say of such sizes, if not their times."""

LONGER = _CONSTANTS.number("reach_of_time")
"""How much longer than measured the model's time may be."""

BEYOND = _CONSTANTS.number("beyond")
"""How much farther off GEMMs of sizes beyond the measured ones are than those."""

_SIZES = ("b", "m", "n", "k")

_SIDE = 4
"""Index in `ranged` of the longest side of what is batched, 0 of one GEMM."""

_AT_ONCE = 1024
"""Rows corrected at a time: their features then stay in a CPU's cache."""


@attrs.frozen(eq=False)
class Known:
    """What rows of a GPU say of GEMMs of one type.

    Attributes:
        gpu: The GPU that was measured, as the model prices it.
        network: What its rows say.
        own: Whether it is the one asked for, if perhaps of other clocks or memory.
        launch_s: What of a kernel its rows had as a gap between kernels when the
            network was fitted, which does not correct it.

    """

    gpu: Target
    network: fitted_files.Network
    own: bool
    launch_s: float = 0.0

    @functools.cached_property
    def furthest(self) -> Floats:
        """The largest sizes of which there are factors, as `ranged`; shape (7, 1)."""
        times = [REACH] * 5 + [LONGER, 1.0]
        found: Floats = self.network.most * np.array([times]).T
        return found

    @functools.cached_property
    def _ends(self) -> tuple[list[float], list[float]]:
        return self.network.least[:, 0].tolist(), self.furthest[:, 0].tolist()

    def correct(
        self, seconds: Floats, gemms: Gemms, rows: Indices, modelled_s: Floats
    ) -> Indices:
        """Correct some of *seconds* in place; return which are of measured sizes.

        Args:
            seconds: Of all GEMMs, shape (all,).
            gemms: Some of them, as the measured GPU computes them.
            rows: Which of all, shape (some,).
            modelled_s: What the model says that the measured GPU takes for them.

        """
        told_s = modelled_s - self.launch_s
        sizes = ranged(told_s, gemms)
        least = (sizes >= self.network.least).all(axis=0)
        least &= ~np.isin(gemms.own, NO_NETWORK)
        least &= (sizes[_SIDE] == 0) | (self.furthest[_SIDE] > 0)  # batches were seen
        near = np.flatnonzero(least & (sizes[-1] <= self.furthest[-1]))
        part = gemms.part(near)
        end_s, end = _at_the_end(told_s[near], part.size, self._ends[1], ARRAYS)
        part = attrs.evolve(part, sizes=np.array(end[:4]), bytes=end.bytes)
        found = factors(self.network, end_s, part, self.gpu)
        seconds[rows[near]] *= self._of_whole(found, told_s[near])
        inside = (sizes[:, near] <= self.network.most).all(axis=0)
        measured: Indices = rows[near[inside & self.own]]
        return measured

    def is_beyond(self, sizes: Sequence[Number], maths: Maths[Number]) -> Flags | bool:
        """Whether a size, of b, m, n and k, is larger than those that were measured."""
        b, m, n, k = sizes
        most_b, most_m, most_n, most_k, most_side = self._most
        side = maths.most(maths.most(m, n), k) * maths.flag(b > 1)
        found = (b > most_b) | (m > most_m) | (n > most_n) | (k > most_k)
        return found | (side > most_side)

    @functools.cached_property
    def _most(self) -> list[float]:
        most: list[float] = self.network.most[:5, 0].tolist()
        return most

    def factor(
        self, modelled_s: float, size: Size[float], *, transposed: bool
    ) -> tuple[float, bool]:
        """Return the factor on a GEMM's time, and whether its size was measured."""
        turned, told_s = float(transposed), modelled_s - self.launch_s
        sizes = _ranged(told_s, size, turned, FLOATS)
        low, high = self._ends
        unseen = sizes[_SIDE] > 0 and not high[_SIDE]
        if unseen or not all(map(le, low, sizes)) or sizes[-1] > high[-1]:
            return 1.0, False
        end_s, end = _at_the_end(told_s, size, high, FLOATS)
        features = _features(end_s, end, turned, self.gpu, FLOATS)
        inside = self.own and self.network.covers(sizes)
        found = FLOATS.exp(self.network.of_one(features))
        return self._of_whole(found, told_s), inside

    def _of_whole(self, factor: Number, told_s: Number) -> Number:
        """Return the factor on a kernel of which a launch is not corrected."""
        return (told_s * factor + self.launch_s) / (told_s + self.launch_s)


def known_gemms(target: Target) -> Callable[[str], Known | None]:
    """Return a function that finds what is known of a type: of this GPU, or its chip.

    Asked for with `Target.once`.
    """
    asked = target.once(nominal) or target
    gpus = {asked.device.name: asked}

    @functools.cache
    def known(dtype: str) -> Known | None:
        same = SAME_KERNELS.get(dtype)
        if same is not None and (found := known(same)) is not None:
            return found
        if (told := fitted_files.network_of(RESIDUAL_FILE, asked, dtype)) is None:
            return None
        name, network = told
        if name not in gpus:
            gpus[name] = load_target(name)
        launch_s = fitted_files.fitted("gemm").get("launch_s", {}).get(name, 0.0)
        return Known(gpus[name], network, name == asked.device.name, launch_s)

    return known


def beyond_rows(kernels: KernelTable, target: Target) -> Flags:
    """Return which GEMMs are larger than those that were measured on this GPU."""
    found = np.zeros(len(kernels), dtype=np.bool_)
    kinds, at = kernels.kinds
    for number, (op, dtype, mode) in enumerate(kinds):
        known = _own_gemms(target, dtype, mode) if op == "gemm" else None
        if known is not None:
            sizes = [kernels.param(name, 1.0) for name in _SIZES]
            found |= known.is_beyond(sizes, ARRAYS) & (at == number)
    return found


def is_beyond(one: OneSignature, target: Target) -> bool:
    """Whether one GEMM is."""
    known = _own_gemms(target, one.kernel.dtype, one.math)
    if known is None:
        return False
    sizes = [one.param(name, 1.0) for name in _SIZES]
    return bool(known.is_beyond(sizes, FLOATS))


def _own_gemms(target: Target, dtype: str, mode: str) -> Known | None:
    known = target.once(known_gemms)(type_of(dtype, mode))
    return known if known is not None and known.own else None


def type_of(dtype: str, mode: str) -> str:
    """Return the type that GEMMs are known by: how they are stored, but for TF32."""
    return mode if mode == "tf32" else dtype


def has_network(target: Target, dtype: str) -> bool:
    """Whether GEMMs of a type were measured in thousands, on it or its chip."""
    return target.once(known_gemms)(SAME_KERNELS.get(dtype, dtype)) is not None


def ranged(seconds: Floats, gemms: Gemms) -> Floats:
    """Return the numbers that bound the measured range, shape (7, rows).

    Sizes, the longest side of what is batched, the model's *seconds*, and the batch
    where an operand is transposed.
    """
    turned = gemms.transposed.astype(np.float64)
    return np.array(_ranged(seconds, gemms.size, turned, ARRAYS))


def _ranged(
    seconds: Number, size: Size[Number], transposed: Number, maths: Maths[Number]
) -> tuple[Number, ...]:
    batch, m, n, k, _, _ = size
    side = maths.most(maths.most(m, n), k) * maths.flag(batch > 1)
    return batch, m, n, k, side, seconds, batch * transposed


def _at_the_end(
    seconds: Number, size: Size[Number], furthest: Sequence[float], maths: Maths[Number]
) -> tuple[Number, Size[Number]]:
    """Return the largest part of a GEMM that is corrected, and its *seconds*.

    The factor of what is larger is that of this part: were it 1, a GEMM of one row more
    would be faster.
    """
    least, (b, m, n, k, side, longest, _) = maths.least, furthest
    side_of = maths.where(size.batch > 1, side, math.inf)
    end = size._replace(
        batch=least(size.batch, b),
        m=least(least(size.m, m), side_of),
        n=least(least(size.n, n), side_of),
        k=least(least(size.k, k), side_of),
    )
    whole = size.batch * size.m * size.n * size.k
    share = end.batch * end.m * end.n * end.k / whole
    return least(seconds * share, longest), end._replace(bytes=size.bytes * share)


def factors(
    network: fitted_files.Network, seconds: Floats, gemms: Gemms, target: Target
) -> Floats:
    """Return by what to multiply the model's *seconds*, whatever the sizes."""
    parts = [
        network(features_of(seconds[part], gemms.part(part), target))
        for at in range(0, len(seconds), _AT_ONCE)
        for part in (slice(at, at + _AT_ONCE),)
    ]
    found: Floats = np.exp(np.concatenate([np.empty(0), *parts]))
    return found


def features_of(seconds: Floats, gemms: Gemms, target: Target) -> fitted_files.Weights:
    """Return the network's features of each GEMM, shape (features, rows)."""
    turned = gemms.transposed.astype(np.float64)
    found = _features(seconds, gemms.size, turned, target, ARRAYS)
    return np.array(found, dtype=np.float32)


def _features(
    seconds: Number,
    size: Size[Number],
    transposed: Number,
    target: Target,
    maths: Maths[Number],
) -> list[Any]:
    """Return numbers, and flags as they are: they become numbers with the rest."""
    per_l2, per_s, per_sm = target.once(_per_device)
    batch, m, n, k, moved, peak = size
    width, held = batch * mean_width(size) * per_l2, moved * per_l2
    logs: list[Number] = maths.logs2(
        (
            m,
            n,
            k,
            seconds * 1e6,
            batch,
            held,
            batch * m * n * k * 2 / peak / seconds,
            moved * per_s / seconds,
        )
    )
    found: list[Any] = [*logs[:5], transposed, *logs[5:]]
    wide = width * 6.0
    found += (_cold(held * 6.0), _cold(held * held * 4.0))
    found += (_cold(m * k * wide), _cold(k * n * wide), _cold(m * n * wide))
    found += _tiling(m, n, batch * per_sm, maths)
    # Up to so many rows libraries have kernels of their own.
    found += (m <= 1, m <= 4, m <= 8, m <= 16, m <= 32, m <= 64, m <= 128)  # noqa: PLR2004
    found += (m % 2 == 1, m % 16 == 0)
    return found


def _cold(share: Number) -> Number:
    """Return how little of what takes so much of L2 is warm, from -1 to 1.

    As tanh of 1.5 times the logarithm, by exact operations.
    """
    return 1.0 - 2.0 / (share * share * share + 1.0)


def _tiling(m: Number, n: Number, each: Number, maths: Maths[Number]) -> list[Number]:
    """Return how well a GEMM fills tiles and waves of them.

    How empty the last wave is for each of eight tiles, then how full all waves are, and
    how much of the tiles of 128 and 192 rows is padding. *each* is the batch over the
    number of SMs.
    """
    ceil = maths.ceil
    m32, m64, m128 = ceil(m * (1 / 32)), ceil(m * (1 / 64)), ceil(m * (1 / 128))
    m192, m256 = ceil(m * (1 / 192)), ceil(m * (1 / 256))
    n64, n128 = ceil(n * (1 / 64)) * each, ceil(n * (1 / 128)) * each
    n256 = ceil(n * (1 / 256)) * each
    waves = [m32 * n64, m64 * n64, m128 * n64, m64 * n128]
    waves += [m128 * n128, m192 * n128, m128 * n256, m256 * n128]
    found = [(count > 1) * (ceil(count) / count - 1.0) for count in waves]
    found += [count / (count + 1.0) for count in waves]
    found += [1.0 - m / (m128 * 128), 1.0 - m / (m192 * 192)]
    return found


def _per_device(target: Target) -> tuple[float, float, float]:
    """Return one over the bytes of L2, over those that memory moves, over the SMs."""
    device = target.device
    memory_rate = device.memory.bytes_per_s
    return 1 / device.l2.capacity_bytes, 1 / memory_rate, 1 / device.sm_count
