"""The rules of TorchRec's planner give the values that its own tests expect.

The rows are in `../shared/data/planner/estimator_goldens.csv`; they say what comes out.
What went in follows from them and stands below.
"""

from __future__ import annotations

import csv
from pathlib import Path

import attrs
import pytest

from perfc.passes import World
from perfc.planning import PerfRules, Topology
from perfc.planning.plans import Table
from perfc.planning.reference import (
    GIB,
    CacheStats,
    CollectiveNetwork,
    CommBytes,
    Constraints,
)

GOLDENS = (
    Path(__file__).parents[4] / "shared" / "data/planner/estimator_goldens.csv"
).resolve()

TWO_RANKS = Topology(world=World(ranks=2, per_node=2))
MEASURED = attrs.evolve(
    TWO_RANKS,
    network=CollectiveNetwork(
        all_to_all_bytes_per_s=300.0 * GIB,
        reduce_scatter_bytes_per_s=300.0 * GIB,
        all_gather_bytes_per_s=300.0 * GIB,
        all_reduce_bytes_per_s=80.0 * GIB,
    ),
)
SMALL = Table(name="table_0", rows=100, dim=10, pooling=1)
SEQUENCE = Table(name="table_0", rows=256, dim=32, pooling=1)
QUANTISED = Table(name="table_0", rows=100, dim=16, pooling=1, element_bytes=1)

MISSES_A_FIFTH = Constraints(
    cache_load_factor=0.2,
    cache_stats=CacheStats(lookups=100_000, histogram=(80.0, 20.0, 0.0, 0.0, 0.0)),
)
"""10 columns of 20,000 rows are fetched in the rows."""


@attrs.frozen
class Case:
    """What one of TorchRec's tests gives its planner."""

    rules: PerfRules
    table: Table
    constraints: Constraints | None = None


FP8 = CommBytes(
    forward_all_to_all=1,
    backward_all_to_all=1,
    forward_reduce_scatter=2,
    backward_all_gather=2,
)

BASIC, MORE = (
    "TestEmbeddingPerfEstimator",
    "TestEmbeddingPerfEstimatorWithGeneralizedComms",
)
CASES = {
    (BASIC, "test_1_table_perf"): Case(PerfRules(topology=TWO_RANKS), SMALL),
    (MORE, "test_1_table_perf"): Case(PerfRules(topology=MEASURED), SMALL),
    (BASIC, "test_1_table_perf_with_fp8_comm"): Case(
        PerfRules(topology=TWO_RANKS, comm_bytes=FP8), SMALL
    ),
    (BASIC, "test_sequence_2_table_perf"): Case(
        PerfRules(topology=TWO_RANKS, pooled=False), SEQUENCE
    ),
    (BASIC, "test_inference_1_table_perf"): Case(
        PerfRules(topology=TWO_RANKS, inference=True), QUANTISED
    ),
    (BASIC, "test_prefetch_compute"): Case(
        PerfRules(topology=TWO_RANKS), SMALL, MISSES_A_FIFTH
    ),
}

QUANTITIES = {
    "fwd_compute": "forward_compute_s",
    "fwd_comms": "forward_comms_s",
    "bwd_compute": "backward_compute_s",
    "bwd_comms": "backward_comms_s",
    "prefetch_computes": "prefetch_s",
    "total_perfs": "total_s",
}


def rows() -> list[dict[str, str]]:
    """Return the rows, none if the data are not there."""
    if not GOLDENS.is_file():
        return []
    with GOLDENS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def row_id(row: dict[str, str]) -> str:
    """Say which row it is."""
    keys = (
        "test_class",
        "test",
        "table",
        "compute_kernel",
        "sharding_type",
        "shard",
        "quantity",
    )
    return "-".join(row[key] for key in keys)


@pytest.mark.skipif(not GOLDENS.is_file(), reason=f"needs {GOLDENS}")
def test_every_row_is_covered() -> None:
    """No row is left out: the file has 305, and each has its inputs below."""
    found = rows()
    tests = {(row["test_class"], row["test"]) for row in found}
    assert (305, set(CASES)) == (len(found), tests)


@pytest.mark.skipif(not GOLDENS.is_file(), reason=f"needs {GOLDENS}")
@pytest.mark.parametrize("row", rows(), ids=row_id)
def test_value_is_torchrecs(row: dict[str, str]) -> None:
    """A time is TorchRec's to rounding."""
    case = CASES[row["test_class"], row["test"]]
    kind, kernel = row["sharding_type"], row["compute_kernel"]
    perf = case.rules.perf(case.table, kind, kernel, case.table.dim, case.constraints)
    found_ms = getattr(perf, QUANTITIES[row["quantity"]]) * 1e3
    assert pytest.approx(float(row["value_ms"]), rel=1e-12) == found_ms
