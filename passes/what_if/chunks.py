"""Streams in one task: copy in, compute and copy out, chunk by chunk.

With n chunks, each of which costs o besides,

    T(n) = (a + b + c)/n + (1 - 1/n) max(a, b, c) + n o

for a, b and c of the whole. The gain is at most (a + b + c)/max(a, b, c), and so 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def chunked_s(parts_s: Sequence[float], chunks: int, overhead_s: float) -> float:
    """Return the seconds of a task in so many chunks.

    Args:
        parts_s: Of copying in, computing and copying out.
        chunks: How many chunks there are.
        overhead_s: What a chunk costs besides.

    """
    whole, longest = math.fsum(parts_s), max(parts_s)
    return whole / chunks + (1 - 1 / chunks) * longest + chunks * overhead_s


def best_chunks(parts_s: Sequence[float], overhead_s: float, most: int = 2**20) -> int:
    """Return the number of chunks with which a task takes least.

    About sqrt((a + b + c - max)/o): T is convex, so one of the integers beside it.
    """
    hidden = math.fsum(parts_s) - max(parts_s)
    if hidden <= 0:
        return 1
    near = math.sqrt(hidden / overhead_s) if overhead_s > 0 else float(most)
    low = max(1, min(most, math.floor(near)))
    candidates = range(low, min(low + 1, most) + 1)
    return min(candidates, key=lambda n: chunked_s(parts_s, n, overhead_s))
