"""Tables in tiers of memory: what drives, hosts and servers make of their lookups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.tiers.blocks import (
        amplification,
        blocks_per_row,
        stored_bytes,
    )
    from perfc.costmodels.tiers.caches import (
        POOLED_KEY_BYTES,
        ROW_OVERHEAD_BYTES,
        cached_rows,
        check_cache,
        pooled_hit_share,
        shared_cache,
    )
    from perfc.costmodels.tiers.drive import (
        MEAN,
        P99,
        check_load,
        idle_latency_s,
        in_flight,
        latency_s,
        load_within,
        reads_per_s,
    )
    from perfc.costmodels.tiers.fleet import (
        DRIVE_SHARE,
        HostGroup,
        QueryDemand,
        ReadPlan,
        drive_writes_per_day,
        hosts_for,
        queries_per_host,
        samples_per_joule,
        saving,
        wear_warning,
    )
    from perfc.costmodels.tiers.host import (
        RANDOM_SHARE,
        HostLookups,
        HostTime,
        host_lookups,
        lookup_s,
        row_reads,
    )
    from perfc.costmodels.tiers.limits import (
        Busy,
        Rates,
    )
    from perfc.costmodels.tiers.remote import (
        RPC_S,
        Cluster,
        RemoteLookups,
        remote_lookups,
        remote_step_s,
        training_rate,
    )
    from perfc.costmodels.tiers.table import (
        TableCost,
        TieredTable,
        table_cost,
    )
    from perfc.costmodels.tiers.training import (
        TrainingTraffic,
        nodes_needed,
        training_time,
        training_traffic,
    )
    from perfc.costmodels.tiers.use import (
        TierUse,
        check_capacity,
        exposed_s,
        fastest_that_fits,
        query_time,
        tier_use,
        tier_watts,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "blocks": ("amplification", "blocks_per_row", "stored_bytes"),
            "caches": (
                "POOLED_KEY_BYTES",
                "ROW_OVERHEAD_BYTES",
                "cached_rows",
                "check_cache",
                "pooled_hit_share",
                "shared_cache",
            ),
            "drive": (
                "MEAN",
                "P99",
                "check_load",
                "idle_latency_s",
                "in_flight",
                "latency_s",
                "load_within",
                "reads_per_s",
            ),
            "fleet": (
                "DRIVE_SHARE",
                "HostGroup",
                "QueryDemand",
                "ReadPlan",
                "drive_writes_per_day",
                "hosts_for",
                "queries_per_host",
                "samples_per_joule",
                "saving",
                "wear_warning",
            ),
            "host": (
                "RANDOM_SHARE",
                "HostLookups",
                "HostTime",
                "host_lookups",
                "lookup_s",
                "row_reads",
            ),
            "limits": ("Busy", "Rates"),
            "remote": (
                "RPC_S",
                "Cluster",
                "RemoteLookups",
                "remote_lookups",
                "remote_step_s",
                "training_rate",
            ),
            "table": ("TableCost", "TieredTable", "table_cost"),
            "use": (
                "TierUse",
                "check_capacity",
                "exposed_s",
                "fastest_that_fits",
                "query_time",
                "tier_use",
                "tier_watts",
            ),
            "training": (
                "TrainingTraffic",
                "nodes_needed",
                "training_time",
                "training_traffic",
            ),
        },
    )

__all__ = [
    "DRIVE_SHARE",
    "MEAN",
    "P99",
    "POOLED_KEY_BYTES",
    "RANDOM_SHARE",
    "ROW_OVERHEAD_BYTES",
    "RPC_S",
    "Busy",
    "Cluster",
    "HostGroup",
    "HostLookups",
    "HostTime",
    "QueryDemand",
    "Rates",
    "ReadPlan",
    "RemoteLookups",
    "TableCost",
    "TierUse",
    "TieredTable",
    "TrainingTraffic",
    "amplification",
    "blocks_per_row",
    "cached_rows",
    "check_cache",
    "check_capacity",
    "check_load",
    "drive_writes_per_day",
    "exposed_s",
    "fastest_that_fits",
    "host_lookups",
    "hosts_for",
    "idle_latency_s",
    "in_flight",
    "latency_s",
    "load_within",
    "lookup_s",
    "nodes_needed",
    "pooled_hit_share",
    "queries_per_host",
    "query_time",
    "reads_per_s",
    "remote_lookups",
    "remote_step_s",
    "row_reads",
    "samples_per_joule",
    "saving",
    "shared_cache",
    "stored_bytes",
    "table_cost",
    "tier_use",
    "tier_watts",
    "training_rate",
    "training_time",
    "training_traffic",
    "wear_warning",
]
