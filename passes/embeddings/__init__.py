"""Placement of embedding tables: batched, placed, sharded, how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.embeddings.batch_embeddings import BatchEmbeddings, can_batch
    from perfc.passes.embeddings.codec import FULL_PRECISION, PRECISIONS, Codec, encoder
    from perfc.passes.embeddings.dedup import Dedup
    from perfc.passes.embeddings.lookahead_cache import LookaheadCache, cached_tables
    from perfc.passes.embeddings.place_embeddings import PlaceEmbeddings
    from perfc.passes.embeddings.session_groups import FeatureGroup, matched_names
    from perfc.passes.embeddings.set_popularity import SetPopularity
    from perfc.passes.embeddings.shard_embeddings import ShardEmbeddings
    from perfc.passes.embeddings.sharded_tables import Bags, EmbeddingTable
    from perfc.passes.embeddings.sharding_plan import (
        COLUMNS,
        NAMED_PLANS,
        Placement,
        Plan,
        TableSize,
        World,
        check_parts,
        find_plan,
        read_plan,
        usual_kernel,
    )
    from perfc.passes.embeddings.sharding_types import (
        COLUMN_WISE,
        DATA_PARALLEL,
        GRID,
        ROW_WISE,
        SHARDING_TYPES,
        TABLE_ROW_WISE,
        TABLE_WISE,
    )
    from perfc.passes.embeddings.table_tiers import (
        HBM,
        KERNELS,
        TIERS,
        USUAL_CACHE,
        in_tier,
        is_share,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "batch_embeddings": ("BatchEmbeddings", "can_batch"),
            "codec": ("Codec", "FULL_PRECISION", "PRECISIONS", "encoder"),
            "dedup": ("Dedup",),
            "lookahead_cache": ("LookaheadCache", "cached_tables"),
            "place_embeddings": ("PlaceEmbeddings",),
            "session_groups": ("FeatureGroup", "matched_names"),
            "set_popularity": ("SetPopularity",),
            "shard_embeddings": ("ShardEmbeddings",),
            "sharded_tables": ("Bags", "EmbeddingTable"),
            "sharding_plan": (
                "COLUMNS",
                "NAMED_PLANS",
                "Placement",
                "Plan",
                "TableSize",
                "World",
                "check_parts",
                "find_plan",
                "read_plan",
                "usual_kernel",
            ),
            "sharding_types": (
                "COLUMN_WISE",
                "DATA_PARALLEL",
                "GRID",
                "ROW_WISE",
                "SHARDING_TYPES",
                "TABLE_ROW_WISE",
                "TABLE_WISE",
            ),
            "table_tiers": (
                "HBM",
                "KERNELS",
                "TIERS",
                "USUAL_CACHE",
                "in_tier",
                "is_share",
            ),
        },
    )

__all__ = [
    "COLUMNS",
    "COLUMN_WISE",
    "DATA_PARALLEL",
    "FULL_PRECISION",
    "GRID",
    "HBM",
    "KERNELS",
    "NAMED_PLANS",
    "PRECISIONS",
    "ROW_WISE",
    "SHARDING_TYPES",
    "TABLE_ROW_WISE",
    "TABLE_WISE",
    "TIERS",
    "USUAL_CACHE",
    "Bags",
    "BatchEmbeddings",
    "Codec",
    "Dedup",
    "EmbeddingTable",
    "FeatureGroup",
    "LookaheadCache",
    "PlaceEmbeddings",
    "Placement",
    "Plan",
    "SetPopularity",
    "ShardEmbeddings",
    "TableSize",
    "World",
    "cached_tables",
    "can_batch",
    "check_parts",
    "encoder",
    "find_plan",
    "in_tier",
    "is_share",
    "matched_names",
    "read_plan",
    "usual_kernel",
]
