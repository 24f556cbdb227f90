"""Plans as TorchRec writes them: `EmbeddingModuleShardingPlan`, as JSON.

Each table has `sharding_type`, `compute_kernel`, `ranks` and `sharding_spec`, whose
shards have offsets, sizes and a placement, and `cache_params` if its kernel caches
(TorchRec's `ParameterSharding`, `EnumerableShardingSpec`, `ShardMetadata` and
`CacheParams`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from perfc.costmodels import UVM_CACHING
from perfc.passes import DATA_PARALLEL, Placement, Plan, World, embeddings
from perfc.planning.plans.cost import Table


def plan_text(plan: Plan, tables: Sequence[Table], world: World) -> str:
    """Return a plan as JSON: what `shard-embeddings{plan=FILE}` reads."""
    return json.dumps(_document(plan, tables, world), indent=1) + "\n"


def plan_line(plan: Plan, tables: Sequence[Table], world: World) -> str:
    """Return a plan's JSON on one line, as an option: written ten times as fast."""
    return json.dumps(_document(plan, tables, world))


def _document(
    plan: Plan, tables: Sequence[Table], world: World
) -> dict[str, dict[str, dict[str, object]]]:
    return {"tables": {t.name: _entry(t, plan[t.name], world) for t in tables}}


def _entry(table: Table, placement: Placement, world: World) -> dict[str, object]:
    everywhere = placement.kind == DATA_PARALLEL
    entry: dict[str, object] = {
        "sharding_type": placement.kind,
        "compute_kernel": placement.compute_kernel
        or embeddings.usual_kernel(placement.kind),
        "ranks": _ranks(placement, world),
    }
    if placement.tier == UVM_CACHING:
        entry["cache_params"] = {"load_factor": placement.cache}
    # The parts, those of the first columns first.
    shards: list[dict[str, object]] = []
    ranks = _ranks(placement, world)
    by_columns = placement.kind in (embeddings.COLUMN_WISE, embeddings.GRID)
    parts = len(placement.places) if by_columns else 1
    among = len(ranks) // parts
    block, dim = -(-table.rows // among), table.dim // parts
    for number, rank in enumerate(ranks):
        part, row = divmod(number, among)
        first = min(row * block, table.rows)
        rows = min(block, table.rows - first)
        shards.append(
            {
                "shard_offsets": [first, part * dim],
                "shard_sizes": [rows, dim],
                "placement": f"rank:{rank}/cuda:{rank % world.per_node}",
            }
        )
    entry["sharding_spec"] = None if everywhere else {"shards": shards}
    return entry


def _ranks(placement: Placement, world: World) -> list[int]:
    if placement.kind in (embeddings.ROW_WISE, DATA_PARALLEL):
        return list(range(world.ranks))
    if placement.kind in (embeddings.TABLE_ROW_WISE, embeddings.GRID):
        size = world.per_node
        return [node * size + n for node in placement.places for n in range(size)]
    return list(placement.places)
