"""The heap of a CPU's process, in which results of its ops lie.

glibc takes a large block from the heap if there is room, else it maps it anew, page by
page, and unmaps it when it is freed (mallopt(3)). Operands that came and went leave
holes, which results would then lie in or not, as it happens. In a model that has run
for a while results of under 32 MiB lie in the heap, and larger ones are mapped: the
system clears their pages, which takes longer than most kernels and, where a hypervisor
takes free pages back, five times as long at times. Results of all sizes lie in the heap
while kernels are measured; what new pages take is measured on its own.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""`M_TRIM_THRESHOLD`, `M_MMAP_THRESHOLD` and `M_MMAP_MAX` of malloc.h."""

_MAPPED_BLOCKS = 65536
"""`DEFAULT_MMAP_MAX`: blocks that may be mapped at once."""

_NEVER = -1
"""Value of `M_TRIM_THRESHOLD` with which the heap's top is not given back."""

_LEAST_BYTES, _MOST_BYTES = 128 * 2**10, 32 * 2**20
"""`DEFAULT_MMAP_THRESHOLD` and its maximum with 64 bits, to which it rises by itself
while large blocks are freed; twice that stays free at the heap's top."""


@contextmanager
def mapped_operands() -> Generator[None]:
    """Map each large block that is made meanwhile: it leaves no hole in the heap.

    Other systems than Linux with glibc have other heaps, which are left as they are.
    """
    option = _mallopt()
    if option is None:
        yield
        return
    option(_TRIM_THRESHOLD, 2 * _MOST_BYTES)
    option(_MMAP_THRESHOLD, _LEAST_BYTES)
    try:
        yield
    finally:
        option(_MMAP_THRESHOLD, _MOST_BYTES)


@contextmanager
def heap_results() -> Generator[None]:
    """Map nothing meanwhile, and keep what the heap has: results find their pages.

    What is free is given back in the end.
    """
    option = _mallopt()
    if option is None:
        yield
        return
    option(_MMAP_MAX, 0)
    option(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        option(_TRIM_THRESHOLD, 2 * _MOST_BYTES)
        option(_MMAP_MAX, _MAPPED_BLOCKS)
        ctypes.CDLL(None).malloc_trim(0)


def _mallopt() -> Callable[[int, int], int] | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "mallopt", None)
