"""What a causal mask leaves of an attention kernel's work."""

from __future__ import annotations

import numpy as np

from perfc.costmodels.protocol import Floats, KernelTable


def executed_share(kernels: KernelTable) -> Floats:
    """Return the least share of the products that a causal mask leaves to compute.

    Queries see the keys up to their own position; the first query is aligned
    with the first key.
    """
    q_len, kv_len = kernels.param("q_len", 1.0), kernels.param("kv_len", 1.0)
    causal = kernels.given("causal")
    seen = np.minimum(q_len, kv_len)
    below = seen * (seen + 1) / 2 + (q_len - seen) * kv_len
    share: Floats = np.where(causal, below / (q_len * kv_len), 1.0)
    return share


def keys_per_tile(kernels: KernelTable, tile: Floats) -> Floats:
    """Return how many keys a tile of queries walks through, the mean over tiles.

    Under a causal mask a tile ends with the keys that its last query sees.
    """
    q_len, kv_len = kernels.param("q_len", 1.0), kernels.param("kv_len", 1.0)
    tiles = np.ceil(q_len / tile)
    below = np.minimum(tiles, np.floor(kv_len / tile))
    seen = tile * below * (below + 1) / 2 + (tiles - below) * kv_len
    keys: Floats = np.where(kernels.given("causal"), seen / tiles, kv_len)
    return keys
