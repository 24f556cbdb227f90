"""Kernels on a CPU: a sum of terms, each a coefficient times an amount.

    t = start + fork + (items * each + rows * each) / cores
        + flops / rate * (slowdown + m_half / m + n_half / n + k_half / k)
        + cached bytes / cache rate * passes + other bytes / memory rate * passes
        + new pages * time of a page fault

PyTorch takes all cores from 32768 elements on (`at::internal::GRAIN_SIZE`); forking
takes `fork_us`. A product's rate ramps with its sizes: half of it is reached at
`m_half` rows, if n and k are large; packing operands and filling registers cost that
much. Operands lie in the last cache as far as they fit there. glibc maps results of 32
MiB and more anew for each call (`M_MMAP_THRESHOLD`, mallopt(3)), and the kernel clears
their pages one by one. A training step, which holds its activations, makes the heap
grow and gives its top back: pages that it writes are new, too (`NEW`, set by the
lowering), but need no system call.

The sum is linear in its coefficients, so that a profile's are found by least squares.
Those here are round numbers for the generic machine of `targets/cpu.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.causal import executed_share
from perfc.costmodels.embedding_bag import has_tables, lookups_of
from perfc.costmodels.kernel_fit import SERIES_KINDS
from perfc.costmodels.protocol import Estimate, Floats, KernelTable, Provenance
from perfc.costmodels.target import Target
from perfc.ir import Kernel

GRAIN = 32768
"""Elements from which on all cores work (`at::internal::GRAIN_SIZE`)."""

PARALLEL_FLOPS = 2e5
"""The same of products."""

NEW_BYTES = 32 * 2**20
"""Results of this size are mapped anew (`DEFAULT_MMAP_THRESHOLD_MAX`, 64 bits)."""

NEW = "new_pages"
"""Parameter of a kernel whose result lies in memory that the heap has just grown by."""

PAGE_BYTES = 4096

Terms = Mapping[str, float]

_STREAM: Terms = {
    "start_us": 0.5,
    "fork_us": 4.0,
    "item_ns": 0.1,
    "cache_passes": 1.5,
    "memory_passes": 1.5,
    "page_us": 0.5,
    "grown_us": 0.4,
}
_HEAVY: Terms = {**_STREAM, "item_ns": 1.2}
_ROWS: Terms = {**_STREAM, "item_ns": 0.6, "row_ns": 40.0}
_PRODUCT: Terms = {
    "start_us": 2.0,
    "fork_us": 4.0,
    "slowdown": 1.25,
    "m_half": 12.0,
    "n_half": 12.0,
    "k_half": 12.0,
    "matrix_us": 0.0,
    "cache_passes": 1.0,
    "memory_passes": 2.0,
    "page_us": 0.5,
    "grown_us": 0.4,
}
_BAG: Terms = {**_STREAM, "start_us": 4.0, "item_ns": 15.0}

SHIPPED: Mapping[str, Terms] = MappingProxyType(
    {
        "gemm": {**_PRODUCT, "matrix_us": 0.2},
        "conv2d": {**_PRODUCT, "start_us": 20.0, "cache_passes": 3.0},
        "conv3d": {**_PRODUCT, "start_us": 20.0, "cache_passes": 3.0},
        "attention": {**_PRODUCT, "start_us": 10.0, "slowdown": 2.0},
        "pool": {**_STREAM, "item_ns": 7.0},
        "softmax": {**_ROWS, "item_ns": 1.2},
        "layer_norm": {**_ROWS, "start_us": 2.0},
        "batch_norm": {**_STREAM, "start_us": 10.0, "item_ns": 0.6},
        "reduction": _ROWS,
        "embedding_bag": _BAG,
        "embedding_backward": _BAG,
    }
)
"""Coefficients by op; those of other ops are of a stream. A pool takes windows element
by element, comparing with NaN.

Round numbers near what PyTorch 2.13 with MKL and oneDNN does on two cores of Zen 3; a
profile has the machine's own. Pools, `grown_us` and the start of a convolution were
read off profiled steps of the models of `examples/selfcheck_models.py`, so that what
`make selfcheck` prints is in-sample in these.
"""

_SIGMA_SHARED, _SIGMA_OWN = 0.35, 0.4
"""Chosen, not fitted: CPUs differ by more than GPUs of one maker."""


def shipped_terms(kernel: Kernel) -> Terms:
    """Return the coefficients that perfc ships for a kernel."""
    if kernel.params.get("kind") in SERIES_KINDS:
        return _HEAVY
    return SHIPPED.get(kernel.op, _STREAM)


def amounts_of(kernels: KernelTable, target: Target) -> dict[str, Floats]:
    """Return how many seconds each coefficient stands for at 1, by its name.

    Shape (kernels,) each.
    """
    device = target.device
    items = _items(kernels)
    parallel: NDArray[np.bool_] = (items >= GRAIN) | (kernels.flops >= PARALLEL_FLOPS)
    share: Floats = np.where(parallel, 1.0, 1.0 / device.sm_count)
    outside: Floats = np.clip(
        _held_bytes(kernels) / device.l2.capacity_bytes - 0.5, 0.0, 1.0
    )
    cached_s: Floats = kernels.bytes * (1 - outside) / (device.l2.bytes_per_s * share)
    memory_s: Floats = kernels.bytes * outside / device.memory.bytes_per_s
    items_s: Floats = items / (share * device.sm_count)
    written = kernels.bytes_written
    grown = np.array([kernel.params.flag(NEW) for kernel in kernels.kernels])
    mapped_pages: Floats = np.where(written >= NEW_BYTES, written / PAGE_BYTES, 0.0)
    grown_pages: Floats = np.where(grown, written / PAGE_BYTES, 0.0)
    amounts = {
        "start_us": np.full(len(kernels), 1e-6),
        "fork_us": np.where(parallel, 1e-6, 0.0),
        "item_ns": items_s * 1e-9,
        "row_ns": kernels.param("rows") / (share * device.sm_count) * 1e-9,
        "cache_passes": cached_s,
        "memory_passes": memory_s,
        "page_us": mapped_pages * 1e-6,
        "grown_us": np.where(mapped_pages > 0, 0.0, grown_pages) * 1e-6,
    }
    return amounts | _product_amounts(kernels, target, share)


def _product_amounts(
    kernels: KernelTable, target: Target, share: Floats
) -> dict[str, Floats]:
    rate = np.array(
        [target.device.flops_per_s.get(k.math, np.inf) for k in kernels.kernels]
    )
    flops_s = kernels.flops / (rate * share)
    attention = np.flatnonzero([k.op == "attention" for k in kernels.kernels])
    if len(attention):
        flops_s[attention] *= executed_share(kernels.take(attention))
    sizes = np.array([product_sizes(k) for k in kernels.kernels], dtype=np.float64)
    batch, m, n, k = sizes.reshape(-1, 4).T
    return {
        "slowdown": flops_s,
        "m_half": flops_s / m,
        "n_half": flops_s / n,
        "k_half": flops_s / k,
        "matrix_us": 1e-6 * batch / (share * target.device.sm_count),
    }


def product_sizes(kernel: Kernel) -> tuple[float, ...]:
    """Return b, m, n and k of the product that a kernel computes, ones if it is none.

    b counts products that are called one by one: a single one is no batch, 0.
    """
    p = kernel.params
    if kernel.op == "gemm":
        b = p.integer("b", 1)
        return float(b if b > 1 else 0), *(float(p.integer(x)) for x in "mnk")
    if kernel.op == "attention":
        heads = p.integer("batch") * p.integer("heads")
        sizes = (p.integer(name) for name in ("q_len", "kv_len", "head_dim"))
        return float(heads), *map(float, sizes)
    if kernel.op in {"conv2d", "conv3d"}:
        groups = p.integer("groups", 1)
        columns = max(p.integer("c_out") // groups, 1)
        depth = max(p.integer("c_in") // groups, 1) * _window(kernel)
        rows = kernel.work.flops / (2 * columns * depth * groups)
        return 0.0, max(rows, 1.0), float(columns), float(depth)
    return 0.0, 1.0, 1.0, 1.0


def _window(kernel: Kernel) -> int:
    """Return the taps of a convolution's window: one number, or one an axis."""
    size = kernel.params["kernel"]
    if isinstance(size, tuple):
        return int(np.prod([int(str(axis)) for axis in size]))
    return int(str(size)) ** (3 if kernel.op == "conv3d" else 2)


def _items(kernels: KernelTable) -> Floats:
    """Return what a kernel goes over: elements, those of windows, rows looked up."""
    items = kernels.param("rows") * kernels.param("cols")
    moved = np.maximum(kernels.bytes_read, kernels.bytes_written) / 4
    items = np.where(items > 0, items, moved)
    windows = [kernel.op == "pool" for kernel in kernels.kernels]
    items = np.where(windows, kernels.flops, items)
    bags = _bag_rows(kernels)
    if len(bags):
        part = kernels.take(bags)
        lookups = lookups_of(part)
        items[bags] = lookups.per_kernel(lookups.count, len(bags))
    return items


def _held_bytes(kernels: KernelTable) -> Floats:
    """Return the bytes that a kernel needs at hand: of rows looked up twice, one."""
    held = kernels.bytes.copy()
    bags = _bag_rows(kernels)
    if len(bags):
        lookups = lookups_of(kernels.take(bags))
        held[bags] = lookups.per_kernel(lookups.rows * lookups.row_bytes, len(bags))
    return held


def _bag_rows(kernels: KernelTable) -> NDArray[np.intp]:
    found = [k.op == "embedding_bag" and has_tables(k) for k in kernels.kernels]
    return np.flatnonzero(found)


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
        known = [kernel.known for kernel in kernels.kernels]
        return np.array(known) & target.device.synchronous

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows, by the profile's coefficients where it has any."""
        fits = [target.fits.of(kernel) for kernel in kernels.kernels]
        terms = [
            shipped_terms(kernel) if fit is None or fit.is_correction else fit.values
            for kernel, fit in zip(kernels.kernels, fits, strict=True)
        ]
        count = len(kernels)
        return Estimate(
            seconds_of(amounts_of(kernels, target), terms),
            np.full(count, _SIGMA_SHARED),
            np.full(count, _SIGMA_OWN),
            [self.name] * count,
            [Provenance.ANALYTIC] * count,
        )


CPU = CpuModel()
"""The built-in instance."""
