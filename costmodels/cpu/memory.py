"""What kernels on a CPU move: bytes of each cache and of the memory, and new pages.

What a kernel needs at hand lies in the cores' own caches, in the one that they share,
far away in that one, or in memory. What programs beside it leave of a server's shared
cache is a part of it.

glibc maps results of `NEW_BYTES` and more anew for each call (`M_MMAP_THRESHOLD`,
mallopt(3)), and the system clears their pages one by one. What the heap grows by is
new, too, but is not mapped. Kernels whose results lie in new pages have the parameter
`NEW`; others write to pages that the heap has, as measured rows do.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from perfc.costmodels.cpu.movement import gathered_bytes
from perfc.costmodels.kernels import Floats, KernelTable
from perfc.costmodels.machine import BACKWARD, Target
from perfc.ir import Kernel

NEW_BYTES = 32 * 2**20
"""Results of this size are mapped anew (`DEFAULT_MMAP_THRESHOLD_MAX`, 64 bits)."""

HEAP_BYTES = 4 * 2**20
"""Results of this size come from the top of the heap."""

NEW = "new_pages"
"""Parameter of a kernel whose result lies in memory that the system has just given."""

IN_PLACE = "in_place"
"""Parameter of a kernel that writes over one of its operands."""

PAGE_BYTES = 4096

PRIVATE_BYTES = 2 * 2**20
"""Bytes of a core's own cache; what exceeds those lies in the one that cores share."""

DISTANT_BYTES = 16 * 2**20
"""Bytes of the last cache that other programs leave: of a server's most is far away."""

CACHE_PARTS: Mapping[str, int] = MappingProxyType(
    {"gemm": 4, "gather": 4, "embedding_bag": 4, "reduction": 4}
)
"""Ops that find one such part of the last cache free, others find all: what ran before
and what other programs use lies there, too. Read off rows of two cores of Zen 3."""


def memory_amounts(
    kernels: KernelTable, held_bytes: Floats, target: Target, share: Floats
) -> dict[str, Floats]:
    """Return the amounts read and written where, and pages, seconds at coefficient 1.

    Shape (kernels,) each.

    Args:
        kernels: Of any op.
        held_bytes: What each needs at hand, shape (kernels,).
        target: A CPU.
        share: Of its cores that work on each, shape (kernels,).

    """
    device = target.device
    # Cores that are added by hand take nothing from what each reads of the caches.
    known_cores = (target.unset or target).device.sm_count
    known_share = np.minimum(share * device.sm_count / known_cores, 1.0)
    rate = device.l2.bytes_per_s * known_share
    parts = np.array([_cache_parts(kernel) for kernel in kernels.kernels])
    outside = _beyond(held_bytes * parts, device.l2.capacity_bytes)
    inside_s = (1 - outside) / rate
    shared_s = inside_s * _beyond(held_bytes, PRIVATE_BYTES * share * device.sm_count)
    moved = np.maximum(kernels.bytes, gathered_bytes(kernels))
    return {
        "cache_passes": moved * inside_s,
        "shared_read_passes": kernels.bytes_read * shared_s,
        "shared_written_passes": kernels.bytes_written * shared_s,
        "distant_passes": moved * inside_s * _beyond(held_bytes, DISTANT_BYTES),
        "memory_passes": moved * outside / device.memory.bytes_per_s,
        **_pages(kernels),
    }


def _beyond(held_bytes: Floats, capacity_bytes: Floats | float) -> Floats:
    """Return the share that a cache does not hold: from half of it on, to all."""
    share: Floats = np.clip(held_bytes / capacity_bytes - 0.5, 0.0, 1.0)
    return share


def _pages(kernels: KernelTable) -> dict[str, Floats]:
    written = kernels.bytes_written
    placed = np.array([makes_no_result(kernel) for kernel in kernels.kernels])
    pages_s = written / PAGE_BYTES * 1e-6
    grown = np.array([kernel.params.flag(NEW) for kernel in kernels.kernels])
    mapped = grown & (written >= NEW_BYTES) & ~placed
    heap = (written >= HEAP_BYTES) & ~placed & ~grown
    return {
        "page_us": np.where(mapped, pages_s, 0.0),
        "heap_page_us": np.where(heap, pages_s, 0.0),
        "grown_us": np.where(grown & ~mapped, pages_s, 0.0),
    }


def _cache_parts(kernel: Kernel) -> int:
    """Return the parts of the last cache of which it has one; gradients have all."""
    backward = kernel.params.get("phase") == BACKWARD
    return 1 if backward else CACHE_PARTS.get(kernel.op, 1)


def makes_no_result(kernel: Kernel) -> bool:
    """Whether what is written has its place already."""
    return (
        kernel.op in {"memcpy", "optimizer_step"}
        or kernel.params.get("kind") == "fill"
        or kernel.params.flag(IN_PLACE)
    )
