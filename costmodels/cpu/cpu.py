"""Kernels on a CPU: a sum of terms, each a coefficient times an amount.

    t = start + scalar + fork + lookups * each + rows looked up first * miss
        + (items * each + rows * each + rows with a tail * each) / cores
        + flops / rate * (slowdown + m_half / m + n_half / n + k_half / k)
        + what products, reductions, norms, joins and optimizers do besides
        + bytes / rate * passes, of each cache and of the memory
        + new pages * time of a page fault

PyTorch takes all cores from 32768 elements on, and other rules of its ops
(`parallel.py`); forking takes `fork_us`. A product's rate ramps with its sizes:
half of it is reached at `m_half` rows, if n and k are large; packing operands and
filling registers cost that much (`products.py`). Down the columns reductions go
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
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.cpu.amounts import amounts_of, vector_lanes
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

_STREAM: Terms = {
    "start_us": 1.2,
    "broadcast_ns": 2.0,
    "scalar_us": 2.0,
    "fork_us": 3.0,
    "item_ns": 0.12,
    "cache_passes": 1.5,
    "memory_passes": 1.5,
    "shared_read_passes": 1.0,
    "shared_written_passes": 1.5,
    "distant_passes": 1.0,
    "page_us": 0.6,
    "heap_page_us": 0.05,
    "grown_us": 0.4,
}
_HEAVY: Terms = {**_STREAM, "item_ns": 1.2, "primitive_us": 12.0}
_ROWS: Terms = {**_STREAM, "item_ns": 0.6, "row_ns": 30.0, "tail_ns": 20.0}
_DOWN: Terms = {
    "down_item_ns": 0.3,
    "down_line_ns": 2.0,
    "down_tail_ns": 2.0,
    "singly_row_ns": 130.0,
    "singly_item_ns": 2.0,
    "singly_split_ns": 50.0,
    "singly_jump_ns": 0.5,
}
_PRODUCT: Terms = {
    "start_us": 1.5,
    "fork_us": 2.0,
    "slowdown": 1.1,
    "m_half": 14.0,
    "n_half": 14.0,
    "k_half": 4.0,
    "ramp_10k": 8.0,
    "ramp_30k": 3.0,
    "ramp_100k": 2.0,
    "matrix_us": 0.0,
    "bias_us": 0.0,
    "cache_passes": 0.5,
    "memory_passes": 2.0,
    "shared_read_passes": 0.5,
    "shared_written_passes": 2.0,
    "distant_passes": 1.5,
    "page_us": 0.6,
    "heap_page_us": 0.05,
    "grown_us": 0.4,
}
_SLOW_PRODUCT: Terms = {**_PRODUCT, "cache_passes": 3.0, "ramp_10k": 1.0}
_CONVOLUTION: Terms = {
    **_SLOW_PRODUCT,
    "cache_passes": 5.0,
    "library_us": 50.0,
    "grouped": 1.5,
    "grouped_rest": 6.0,
    "idle_lanes": 1.1,
    "group_half": 100.0,
    "padded_in": 0.8,
    "padded_out": 0.5,
    "reorder_us": 8.0,
}
_BAG: Terms = {
    **_STREAM,
    "start_us": 13.0,
    "item_ns": 0.1,
    "lookup_ns": 2.0,
    "miss_ns": 5.0,
}
_BAG_GRADIENT: Terms = {
    **_BAG,
    "start_us": 60.0,
    "fork_us": 10.0,
    "item_ns": 1.0,
    "lookup_ns": 50.0,
    "miss_ns": 20.0,
}
_STEP: Terms = {
    **{name: value for name, value in _STREAM.items() if name != "item_ns"},
    "start_us": 5.0,
    "fork_us": 6.0,
    "single_start_us": 16.0,
    "foreach_start_us": 25.0,
    "fused_start_us": 25.0,
    "single_us": 4.0,
    "foreach_us": 2.5,
    "fused_us": 1.3,
    "single_item_ns": 0.25,
    "foreach_item_ns": 0.25,
    "fused_item_ns": 0.08,
}

SHIPPED: Mapping[str, Terms] = MappingProxyType(
    {
        "gemm": {
            **_PRODUCT,
            "matrix_us": 0.05,
            "bias_us": 1.5,
            "bias_item_ns": 0.3,
            "bias_tail_ns": 15.0,
            "bias_handed_ns": 0.2,
            "small_left_ns": 0.4,
            "small_right_ns": 0.1,
            "left_turned_ns": 0.06,
            "right_turned_ns": 0.1,
            "piece_ns": 0.1,
            "rest_ns": 0.1,
            "padded": 0.5,
            "alone": 0.5,
            "joined_us": 1.0,
            "shallow_ns": 0.05,
            "naive_us": 0.2,
            "vector_ns": 0.1,
            "first_vector_ns": 0.2,
            "dot_ns": 1.0,
            "added_row_ns": 4.0,
        },
        "conv2d": _CONVOLUTION,
        "conv3d": _CONVOLUTION,
        "attention": {**_SLOW_PRODUCT, "start_us": 10.0, "slowdown": 2.0},
        "pool": {**_STREAM, "item_ns": 7.0},
        "softmax": {
            **_ROWS,
            "start_us": 2.0,
            "item_ns": 0.8,
            "row_ns": 15.0,
            "short_item_ns": 10.0,
        },
        "softmax backward": {
            **_ROWS,
            "start_us": 3.0,
            "item_ns": 0.4,
            "row_ns": 5.0,
            "short_item_ns": 5.0,
        },
        "layer_norm": {**_ROWS, "start_us": 3.0, "tail_ns": 10.0},
        "layer_norm backward": {**_ROWS, "start_us": 8.0, "tail_ns": 60.0},
        "batch_norm": {
            **_STREAM,
            "start_us": 7.0,
            "item_ns": 0.3,
            "image_ns": 4.0,
            "image_tail_ns": 2.0,
            "lone_ns": 0.4,
        },
        "batch_norm backward": {
            **_STREAM,
            "start_us": 9.0,
            "item_ns": 0.4,
            "image_ns": 4.0,
            "image_tail_ns": 4.0,
            "short_pixel_ns": 15.0,
            "stray_image_ns": 8.0,
            "stray_line_ns": 3.0,
            "lone_ns": 0.7,
            "lone_start_us": 3.0,
            "lone_row_ns": 80.0,
            "lone_channel_ns": 5.0,
        },
        "reduction": {
            **_ROWS,
            "start_us": 1.5,
            "fork_us": 6.0,
            "item_ns": 0.2,
            "row_ns": 6.0,
            "tail_ns": 3.0,
            "short_item_ns": 0.5,
            "indexed_row_ns": 20.0,
            "divided_us": 2.5,
            **_DOWN,
        },
        "elementwise": {**_STREAM, "primitive_us": 12.0},
        "gather": {**_STREAM, "row_ns": 2.0, "miss_ns": 5.0},
        "concat": {**_STREAM, "row_ns": 4.0, "tensor_us": 0.15, "copied_us": 0.7},
        "transpose": {**_STREAM, "item_ns": 0.8, "row_ns": 4.0},
        "optimizer_step": _STEP,
        "embedding_bag": _BAG,
        "embedding_bag backward": _BAG_GRADIENT,
        "embedding_backward": {**_BAG, "lookup_ns": 10.0, "miss_ns": 20.0},
    }
)
"""Coefficients by op, or op and phase; those of other ops are of a stream. A pool takes
windows element by element, comparing with NaN.

Round numbers near what PyTorch 2.13 with MKL and oneDNN does on two cores of Zen 3 and
of a Xeon with AVX-512; a profile has the machine's own. Pools, `grown_us` and the start
of a convolution were read off profiled steps of the models of
`examples/selfcheck_models.py`, so that what `make selfcheck` prints is in-sample in
these.
"""

_CORES = tuple(sorted({2**i for i in range(13)} | {3 * 2**i for i in range(11)}))
"""Numbers of cores that a kernel may be given where that is free."""

_SIGMA_SHARED, _SIGMA_OWN = 0.35, 0.4
"""Chosen, not fitted: CPUs differ by more than GPUs of one maker."""


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
        return Estimate(
            _seconds(kernels, target),
            np.full(count, _SIGMA_SHARED),
            np.full(count, _SIGMA_OWN),
            [self.name] * count,
            [Provenance.ANALYTIC] * count,
        )


def _seconds(kernels: KernelTable, target: Target) -> Floats:
    terms = _terms_of(kernels, target)
    known = target.unset
    if known is None or known.device == target.device:
        return seconds_of(amounts_of(kernels, target), terms)
    # What fields set by hand change, on the price of the known processor.
    lanes = vector_lanes(known)
    before_s = _fastest(kernels, known, terms, lanes)
    changed = _fastest(kernels, target, terms, lanes) / before_s
    return seconds_of(amounts_of(kernels, known), terms) * changed


def _terms_of(kernels: KernelTable, target: Target) -> list[Terms]:
    fits = [target.fits.of(kernel) for kernel in kernels.kernels]
    return [
        shipped_terms(family_of(kernel))
        if fit is None or fit.is_correction
        else fit.values
        for kernel, fit in zip(kernels.kernels, fits, strict=True)
    ]


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
