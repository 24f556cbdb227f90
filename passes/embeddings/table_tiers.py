"""Tiers of memory that embedding tables lie in, as plans and passes say them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perfc.costmodels import UVM_CACHING
from perfc.costmodels.embedding import HOST, REMOTE, UVM
from perfc.ir import AttrValue, Record

HBM = "hbm"
"""Device memory."""

TIERS = (HBM, UVM_CACHING, UVM)
"""All of them, the fastest first."""

KERNELS: Mapping[str, str] = MappingProxyType(
    {HBM: "fused", UVM_CACHING: "fused_uvm_caching", UVM: "fused_uvm"}
)
"""What TorchRec calls the kernels that look tables of a tier up
(`EmbeddingComputeKernel`)."""

USUAL_CACHE = 0.2
"""Share of the rows that device memory holds, if nothing is said: TorchRec's default of
`cache_params.load_factor`."""


def is_share(cache: float) -> bool:
    """Whether a cache can hold such a share of the rows; nan is none."""
    return 0 < cache <= 1


def in_tier(table: Record, tier: str, cache: float, **more: AttrValue) -> Record:
    """Return the record of a table as it is in a tier.

    Args:
        table: A record of `embedding_bag`.
        tier: One of `TIERS`, `host`, `remote`, or the name of a tier of memory.
        cache: Share of the rows that a cache holds; device memory, `uvm` and those that
            others look up have none.
        more: What else its record says of the tier.

    """
    others = {k: v for k, v in table.items() if k not in _OF_TIERS}
    if tier != HBM:
        others["tier"] = tier
    if tier not in (HBM, UVM, HOST, REMOTE):
        others["cache"] = cache
    return Record({**others, **more})


_OF_TIERS = frozenset(
    {"tier", "cache", "count", "servers", "server", "trainers", "rpc_us", "ahead"}
)
