"""What a causal mask leaves of an attention kernel's work."""

from __future__ import annotations

from perfc.costmodels.kernels.maths import Maths, Number
from perfc.costmodels.kernels.signatures import Signatures


def executed_share(kernels: Signatures[Number], maths: Maths[Number]) -> Number:
    """Return the least share of the matmuls that a causal mask leaves to compute.

    Queries see the keys up to their own position; the first query is aligned
    with the first key.
    """
    q_len, kv_len = kernels.param("q_len"), kernels.param("kv_len")
    seen = maths.least(q_len, kv_len)
    below = seen * (seen + 1) / 2 + (q_len - seen) * kv_len
    pairs = maths.most(q_len * kv_len, 1.0)
    return maths.where(kernels.given("causal"), below / pairs, 1.0)


def keys_per_tile(
    kernels: Signatures[Number], tile: Number, maths: Maths[Number]
) -> Number:
    """Return how many keys a tile of queries walks through, the mean over tiles.

    Under a causal mask a tile ends with the keys that its last query sees.
    """
    causal, kv_len = kernels.given("causal"), kernels.param("kv_len")
    if not maths.any(causal):
        return kv_len
    q_len = kernels.param("q_len")
    tiles = maths.ceil(q_len / tile)
    below = maths.least(tiles, maths.floor(kv_len / tile))
    seen = tile * below * (below + 1) / 2 + (tiles - below) * kv_len
    return maths.where(causal, seen / tiles, kv_len)
