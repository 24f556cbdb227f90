"""Tiers, tables and hosts that tests make, and hypothesis draws."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from perfc.costmodels.locality import Uniform, ZipfMandelbrot
from perfc.costmodels.machine import HostResources, Tier
from perfc.costmodels.tiers import TieredTable


def a_tier(**changed: object) -> Tier:
    """Return a drive, of which fields are changed."""
    fields: dict[str, object] = {
        "name": "drive",
        "capacity_bytes": 4e11,
        "granularity_bytes": 4096,
        "bus_granularity_bytes": 4096,
        "reads_per_s": 5e5,
        "writes_per_s": 2e5,
        "read_latency_s": 8e-5,
        "read_bytes_per_s": 3e9,
        "write_bytes_per_s": 2e9,
        "knee": 1.5,
    }
    return Tier(**{**fields, **changed})  # type: ignore[arg-type] # by their names


def a_table(**changed: object) -> TieredTable:
    """Return a table, of which fields are changed."""
    fields: dict[str, object] = {
        "name": "t",
        "rows": 1_000_000,
        "row_bytes": 128,
        "lookups": 30.0,
        "popularity": ZipfMandelbrot(1.05, 0.0),
    }
    return TieredTable(**{**fields, **changed})  # type: ignore[arg-type] # by their names


def a_host(
    sockets: int = 2, per_link: float = 2e10, **changed: object
) -> HostResources:
    """Return a host whose memory, cores and pairs of sockets grow with its sockets."""
    pairs = sockets * (sockets - 1) // 2
    fields: dict[str, object] = {
        "sockets": sockets,
        "cores_per_socket": 20,
        "dram_bytes": sockets * 1e11,
        "dram_bytes_per_s": sockets * 1e11,
        "inter_socket_bytes_per_s": pairs * per_link if pairs else math.inf,
        "ranks_per_uplink": 4,
        "uplink_bytes_per_s": 1.5e10,
    }
    return HostResources(**{**fields, **changed})  # type: ignore[arg-type] # by their names


KNEES = st.sampled_from([1.0, 1.4, 4.0, 12.0, math.inf])

TIERS = st.builds(
    a_tier,
    reads_per_s=st.floats(1e3, 1e8),
    writes_per_s=st.floats(1e3, 1e8),
    read_latency_s=st.floats(1e-7, 1e-3),
    read_bytes_per_s=st.floats(1e8, 1e11),
    write_bytes_per_s=st.floats(1e8, 1e11),
    knee=KNEES,
    granularity_bytes=st.sampled_from([512, 4096]),
    bus_granularity_bytes=st.sampled_from([1, 64, 512]),
)

TABLES = st.builds(
    a_table,
    rows=st.integers(100, 1_000_000),
    row_bytes=st.integers(4, 2048),
    lookups=st.floats(0.5, 500),
    popularity=st.sampled_from(
        [Uniform(), ZipfMandelbrot(0.8, 0.0), ZipfMandelbrot(1.2, 10.0)]
    ),
    padded=st.booleans(),
)
