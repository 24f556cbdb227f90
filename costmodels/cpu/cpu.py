"""Kernels on a CPU: a sum of terms, each a coefficient times an amount.

    t = start + scalar + fork + lookups * each + rows looked up first * miss
        + (items * each + rows * each + rows with a tail * each) / cores
        + flops / rate * (slowdown + m_half / m + n_half / n + k_half / k)
        + what GEMMs, reductions, norms, joins and optimizers do besides
        + bytes / rate * passes, of each cache and of the memory
        + new pages * time of a page fault

PyTorch takes all cores from 32768 elements on, and other rules of its ops
(`parallel.py`); forking takes `fork_us`. A GEMM's rate ramps with its sizes:
half of it is reached at `m_half` rows, if n and k are large; packing operands and
filling registers cost that much (`gemm.py`). Down the columns reductions go
their own ways (`reductions.py`), as do norms of images (`norms.py`) and what is
looked up, joined and turned (`movement.py`). Operands lie in a cache as far as they
fit there (`memory.py`). Results of 32 MiB and more are mapped for each call, and a
training step, which holds its activations, makes the heap grow and gives its top back:
the pages that are written are new (`NEW`, set by the lowering).

The sum is linear in its coefficients, so that a profile's are found by least squares.
Those here are round numbers for the generic machine of `targets/cpu.toml`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.constants import constants
from perfc.costmodels.cpu.amounts import amounts_of, vector_lanes
from perfc.costmodels.cpu.gemm import padded_rows
from perfc.costmodels.cpu.int8 import int8_gains
from perfc.costmodels.kernels import (
    Estimate,
    Floats,
    KernelTable,
    OneSignature,
    Priced,
    Provenance,
)
from perfc.costmodels.machine import SERIES_KINDS, Family, Target, family_of

Terms = Mapping[str, float]

_CONSTANTS = constants("cpu")

_STREAM: Terms = _CONSTANTS.table("group_stream")
_HEAVY: Terms = {**_STREAM, **_CONSTANTS.table("group_heavy")}
_ROWS: Terms = {**_STREAM, **_CONSTANTS.table("group_rows")}
_DOWN: Terms = _CONSTANTS.table("group_down")
_GEMM: Terms = _CONSTANTS.table("group_gemm")
_SLOW_GEMM: Terms = {**_GEMM, **_CONSTANTS.table("group_slow_gemm")}
_CONVOLUTION: Terms = {**_SLOW_GEMM, **_CONSTANTS.table("group_convolution")}
_BAG: Terms = {**_STREAM, **_CONSTANTS.table("group_bag")}
_BAG_GRADIENT: Terms = {**_BAG, **_CONSTANTS.table("group_bag_gradient")}
_STEP: Terms = {
    **{name: value for name, value in _STREAM.items() if name != "item_ns"},
    **_CONSTANTS.table("group_step"),
}

SHIPPED: Mapping[str, Terms] = MappingProxyType(
    {
        "gemm": {**_GEMM, **_CONSTANTS.table("gemm")},
        "conv2d": _CONVOLUTION,
        "conv3d": _CONVOLUTION,
        "attention": {**_SLOW_GEMM, **_CONSTANTS.table("attention")},
        "pool": {**_STREAM, **_CONSTANTS.table("pool")},
        "softmax": {**_ROWS, **_CONSTANTS.table("softmax")},
        "softmax backward": {**_ROWS, **_CONSTANTS.table("softmax_backward")},
        "layer_norm": {**_ROWS, **_CONSTANTS.table("layer_norm")},
        "layer_norm backward": {**_ROWS, **_CONSTANTS.table("layer_norm_backward")},
        "batch_norm": {**_STREAM, **_CONSTANTS.table("batch_norm")},
        "batch_norm backward": {**_STREAM, **_CONSTANTS.table("batch_norm_backward")},
        "reduction": {**_ROWS, **_CONSTANTS.table("reduction"), **_DOWN},
        "elementwise": {**_STREAM, **_CONSTANTS.table("elementwise")},
        "gather": {**_STREAM, **_CONSTANTS.table("gather")},
        "concat": {**_STREAM, **_CONSTANTS.table("concat")},
        "transpose": {**_STREAM, **_CONSTANTS.table("transpose")},
        "optimizer_step": _STEP,
        "embedding_bag": _BAG,
        "embedding_bag backward": _BAG_GRADIENT,
        "embedding_backward": {**_BAG, **_CONSTANTS.table("embedding_backward")},
    }
)
"""Coefficients by op, or op and phase; those of other ops are of a stream. A pool takes
windows element by element, comparing with NaN.

Round numbers of `fitted/constants/cpu.toml`; a profile has the machine's own. Pools,
`grown_us` and the start of a convolution were read off profiled steps, so that what
`make selfcheck` prints is in-sample in these.
"""

_CORES = tuple(sorted({2**i for i in range(13)} | {3 * 2**i for i in range(11)}))
"""Numbers of cores that a kernel may be given where that is free."""

_SIGMA_SHARED = _CONSTANTS.number("sigma_shared")
_SIGMA_OWN = _CONSTANTS.number("sigma_independent")


def shipped_terms(family: Family) -> Terms:
    """Return the coefficients that perfc ships for the kernels of a family."""
    if family.kind in SERIES_KINDS:
        return _HEAVY
    whole = SHIPPED.get(family.op, _STREAM)
    return SHIPPED.get(f"{family.op} {family.phase}", whole)


def seconds_of(amounts: Mapping[str, Floats], terms: Sequence[Terms]) -> Floats:
    """Return the sum of the terms of each kernel, with its own coefficients."""
    seconds = np.zeros(len(terms))
    for name, amount in amounts.items():
        seconds += amount * np.array([own.get(name, 0.0) for own in terms])
    return seconds


@attrs.frozen
class CpuModel:
    """Everything that runs on a CPU, by the terms above."""

    name: str = "cpu"
    priority: int = 70
    ops: frozenset[str] | None = None

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim all kernels of known ops if the device is the host's processor."""
        return kernels.known & target.device.synchronous

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        return one.kernel.known and target.device.synchronous

    def estimate_one(self, one: OneSignature, target: Target) -> Priced | None:
        """Leave it to a table: a program does not ask for kernels of a CPU alone."""
        return None

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows, by the profile's coefficients where it has any."""
        count = len(kernels)
        lanes = vector_lanes(target)
        ways = [[k, *padded_rows(k, lanes)] for k in kernels.kernels]
        starts = np.cumsum([0, *map(len, ways[:-1])])
        each_s = _seconds(KernelTable([*itertools.chain(*ways)]), target)
        return Estimate(
            np.minimum.reduceat(each_s, starts),
            np.full(count, _SIGMA_SHARED),
            np.full(count, _SIGMA_OWN),
            [self.name] * count,
            [Provenance.ANALYTIC] * count,
        )


def _seconds(kernels: KernelTable, target: Target) -> Floats:
    fits = [target.fits.of(kernel) for kernel in kernels.kernels]
    terms = [
        shipped_terms(family_of(kernel))
        if fit is None or fit.is_correction
        else fit.values
        for kernel, fit in zip(kernels.kernels, fits, strict=True)
    ]
    known = target.unset
    if known is None or known.device == target.device:
        return seconds_of(amounts_of(kernels, target), terms) / int8_gains(kernels)
    # What fields set by hand change, on the price of the known processor.
    lanes = vector_lanes(known)
    before_s = _fastest(kernels, known, terms, lanes)
    changed = _fastest(kernels, target, terms, lanes) / before_s
    known_s = seconds_of(amounts_of(kernels, known), terms) / int8_gains(kernels)
    return known_s * changed


def _fastest(
    kernels: KernelTable, target: Target, terms: Sequence[Terms], lanes: int
) -> Floats:
    """Return the seconds of each kernel on as many cores as take least.

    More cores cost a fork and more waiting; so many that it does not pay need not work.
    Wider vectors compute more at a time, and need leave no more elements over.
    """
    cores = target.device.sm_count
    tried = [
        seconds_of(amounts_of(kernels, target, most, lanes), terms)
        for most in _CORES
        if most <= cores
    ]
    return functools.reduce(np.minimum, tried)


CPU = CpuModel()
"""The built-in instance."""
