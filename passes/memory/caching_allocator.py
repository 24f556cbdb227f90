"""PyTorch's caching allocator of device memory, with the defaults of PyTorch 2.

Rules and constants are those of `c10/cuda/CUDACachingAllocator.cpp`: sizes are
rounded to 512 bytes; small requests share segments of 2 MiB, larger ones use
segments of 20 MiB or, from 10 MiB on, of their own size rounded to 2 MiB; the
smallest free block that fits is taken, and split if enough is left over; free
neighbours join. Segments are never given back (`expandable_segments` and
`max_split_size_mb` are off).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

Bytes = TypeVar("Bytes", int, NDArray[np.int64])
KIB, MIB = 2**10, 2**20
BLOCK_BYTES = 512
"""Every size is rounded up to a multiple of this (`kMinBlockSize`)."""

_SMALL = MIB  # kSmallSize: the largest request of the small pool
_SMALL_SEGMENT = 2 * MIB  # kSmallBuffer
_LARGE_SEGMENT = 20 * MIB  # kLargeBuffer
_OWN_SEGMENT = 10 * MIB  # kMinLargeAlloc: from here on a segment of its own
_SEGMENT_ROUND = 2 * MIB  # kRoundLarge


def rounded(nbytes: Bytes) -> Bytes:
    """Return the bytes that the allocator counts for *nbytes*; none for none."""
    return -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES


def _segment_bytes(size: int) -> int:
    if size <= _SMALL:
        return _SMALL_SEGMENT
    if size < _OWN_SEGMENT:
        return _LARGE_SEGMENT
    return -(-size // _SEGMENT_ROUND) * _SEGMENT_ROUND


@attrs.define(eq=False)
class Block:
    """A part of a segment.

    Attributes:
        address: Where it starts; segments lie far apart.
        size: Bytes.
        small: Whether it belongs to the small pool.
        free: Whether nobody has it.
        before: The neighbour below in the segment.
        after: The neighbour above.

    """

    address: int
    size: int
    small: bool
    free: bool = True
    before: Block | None = attrs.field(default=None, repr=False)
    after: Block | None = attrs.field(default=None, repr=False)

    @property
    def entry(self) -> _Entry:
        """What its pool holds of it."""
        return self.size, self.address, self


_Entry: TypeAlias = tuple[int, int, Block]
"""Size, address, block, in the order of best fit; no two addresses are the same."""


@attrs.define(eq=False)
class CachingAllocator:
    """Hands out blocks and takes them back.

    Attributes:
        reserved_bytes: Segments so far; what `torch.cuda.memory_reserved` says.

    """

    reserved_bytes: int = 0
    _free: dict[bool, list[_Entry]] = attrs.field(
        factory=lambda: {True: list[_Entry](), False: list[_Entry]()}
    )

    def allocate(self, nbytes: int) -> Block | None:
        """Return a block of at least *nbytes*, None for nothing."""
        if not nbytes:
            return None
        size = rounded(nbytes)
        small = size <= _SMALL
        pool = self._free[small]
        place = bisect.bisect_left(pool, (size,))
        block = pool.pop(place)[2] if place < len(pool) else self._segment(size, small)
        rest = block.size - size
        if rest >= BLOCK_BYTES if small else rest > _SMALL:
            self._split(block, size)
        block.free = False
        return block

    def release(self, block: Block | None) -> None:
        """Take a block back, and join it with its free neighbours."""
        if block is None:
            return
        block.free = True
        if block.after is not None and block.after.free:
            self._drop(block.after)
            _join(block, block.after)
        if block.before is not None and block.before.free:
            self._drop(block.before)
            block = _join(block.before, block)
        bisect.insort(self._free[block.small], block.entry)

    def _segment(self, size: int, small: bool) -> Block:  # noqa: FBT001 - which pool
        segment = Block(2 * self.reserved_bytes, _segment_bytes(size), small)
        self.reserved_bytes += segment.size
        return segment

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.size - size, block.small)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        bisect.insort(self._free[rest.small], rest.entry)

    def _drop(self, block: Block) -> None:
        pool = self._free[block.small]
        del pool[bisect.bisect_left(pool, block.entry)]


def _join(low: Block, high: Block) -> Block:
    """Make two neighbours one, which is *low*."""
    low.size += high.size
    low.after = high.after
    if high.after is not None:
        high.after.before = low
    return low


def reserved_bytes(
    lasting: Iterable[int], events: Iterable[tuple[int, int]], iterations: int = 2
) -> int:
    """Return the segments that an iteration leaves reserved, in steady state.

    Args:
        lasting: Sizes that are allocated first and stay.
        events: Of one iteration, in order: a number and a size for a request, the
            same number and -1 for its end. Every request must end.
        iterations: How often the events happen; the first one warms up.

    """
    allocator = CachingAllocator()
    for size in lasting:
        allocator.allocate(size)
    held: dict[int, Block | None] = {}
    steps = list(events)
    for _ in range(iterations):
        for number, size in steps:
            if size < 0:
                allocator.release(held.pop(number))
            else:
                held[number] = allocator.allocate(size)
    return allocator.reserved_bytes
