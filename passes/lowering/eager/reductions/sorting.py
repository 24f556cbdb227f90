"""Sorts, scans and runs on the device, as CUB and Thrust launch them.

What a radix sort of CUB does, and how much one block takes, is in its dispatch
(`dispatch_radix_sort.cuh`, `dispatch_merge_sort.cuh` of NVIDIA/cccl); the counts are
those of the Kineto traces of TorchRec on V100 and A100 that PARAM and
HolisticTraceAnalysis publish: two memsets, a histogram and its sums, then a memset and
a pass for every eight bits; one kernel for few keys.
"""

from __future__ import annotations

import math

import attrs

from perfc.ir import DTYPES, AttrValue, DType, TensorType, Work
from perfc.passes.lowering.eager import site

I32, I64 = DTYPES["i32"], DTYPES["i64"]
INDEX_BYTES = 8
"""Bytes of an index that PyTorch sorts."""

RADIX_BITS = 8
"""Bits that one pass of a radix sort looks at."""

SINGLE_TILE_KEYS = 2304
"""Keys of 8 bytes that one block sorts alone: 256 threads, 9 each."""

MERGE_TILE_KEYS = 2048
"""Keys of 8 bytes with values of 8 that one block of a merge sort takes: 256 x 8."""

SMALL_ROW = 4096
"""Elements of a row that one block sorts in place (`should_use_small_sort`)."""

_BINS = 1 << RADIX_BITS
_TILE = 3840
"""Keys in one block of a pass (384 threads, 10 each): it sizes a small buffer."""


def vector(dtype: DType, numel: int) -> site.Tensor:
    """Return a list of numbers on the device."""
    return site.Tensor(TensorType(dtype, (numel,)))


def fill(dtype: DType, *shape: int) -> site.Launch:
    """Launch what `zeros` launches."""
    return site.elementwise_launch("fill", (), site.Tensor(TensorType(dtype, shape)))


def memset(nbytes: int) -> site.Launch:
    """Clear a buffer by a call of the runtime."""
    return attrs.evolve(fill(DTYPES["u8"], nbytes), call=site.MEMSET)


def stream(op: str, kind: str, items: int, read: int, written: int) -> site.Launch:
    """Launch a kernel that goes over a list once."""
    params: dict[str, AttrValue] = {"kind": kind, "rows": 1, "cols": items}
    return site.vector_launch(op, I64, params, Work(0, read, written))


def arange(items: int) -> site.Launch:
    """Number the items."""
    return site.elementwise_launch("arange", (), vector(I64, items))


def key_bits(keys: int) -> int:
    """Return how many bits a key below *keys* has."""
    return max(1, keys.bit_length())


def radix_sort(
    items: int, bits: int, value_bytes: int, key_bytes: int = INDEX_BYTES
) -> tuple[site.Launch, ...]:
    """Sort keys of so many bits, each with a value."""
    moved = items * (key_bytes + value_bytes)
    if items <= SINGLE_TILE_KEYS:
        return (stream("radix_sort", "single_tile", items, moved, moved),)
    passes = math.ceil(bits / RADIX_BITS)
    bins = 4 * _BINS
    launches = [
        memset(bins * passes),
        memset(4 * passes),
        stream("scan", "histogram", items, items * key_bytes, bins * passes),
        stream("scan", "bins", _BINS * passes, bins * passes, bins * passes),
    ]
    for _ in range(passes):
        launches += [
            memset(bins * math.ceil(items / _TILE)),
            stream("radix_sort", "onesweep", items, moved, moved),
        ]
    return tuple(launches)


def sort_rows(x: site.Tensor, axis: int) -> tuple[site.Launch, ...]:
    """Sort along an axis, elements with their places: `cuda/Sort.cu` of ATen.

    Rows of up to 4,096 elements are copied, numbered, and sorted in place, a block a
    row. Others lie behind one another and are sorted as one list, twice where there
    are several: by their elements, then by their rows.
    """
    length = x.shape[axis] if x.shape else 1
    rows = x.numel // length if length else 0
    places = site.elementwise_launch("arange", (), vector(I64, x.numel))
    key_bytes = x.nbytes // x.numel if x.numel else 0
    if length <= SMALL_ROW:
        moved = x.nbytes + x.numel * INDEX_BYTES
        in_place = stream("radix_sort", "rows", x.numel, moved, moved)
        return (
            places,
            site.elementwise_launch("copy", (x,), site.Tensor(x.type)),
            in_place,
        )
    by_element = radix_sort(x.numel, 8 * key_bytes, INDEX_BYTES, key_bytes)
    by_row = radix_sort(x.numel, key_bits(rows), INDEX_BYTES) if rows > 1 else ()
    return (places, *by_element, *by_row)


def merge_sort(items: int) -> tuple[site.Launch, ...]:
    """Sort 64-bit keys and values by a comparison of Thrust's caller.

    Blocks sort their tiles; each round then finds where pairs of runs split, and
    merges them.
    """
    moved = 2 * INDEX_BYTES * items
    launches = [stream("radix_sort", "block_sort", items, moved, moved)]
    tiles = math.ceil(items / MERGE_TILE_KEYS)
    splits = INDEX_BYTES * tiles
    for _ in range(max(0, tiles - 1).bit_length()):
        launches += [
            stream("scan", "partition", tiles, splits, splits),
            stream("radix_sort", "merge", items, moved, moved),
        ]
    return tuple(launches)


def runs(items: int, distinct: int, out_bytes: int) -> tuple[site.Launch, ...]:
    """Find where runs of equal keys begin, or how long they are: two kernels."""
    written = distinct * (INDEX_BYTES + out_bytes)
    return (
        stream("scan", "init", items, 0, 4),
        stream("run_length", "keys", items, items * INDEX_BYTES, written),
    )


def sums(items: int, item_bytes: int) -> tuple[site.Launch, ...]:
    """Add a list up from its begin: two kernels."""
    moved = items * item_bytes
    return (
        stream("scan", "init", items, 0, 4),
        stream("scan", "sums", items, moved, moved),
    )
