"""What updates of embedding rows cost, and how that changes with the sizes."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.costmodels.signatures import ALL_MODELS, bag, update
from tests.costmodels.test_kernel_accuracy import DATA, LIN_V100

from perfc.costmodels import (
    KernelTable,
    Provenance,
    distinct_rows,
    load_target,
    lower_bound,
    price,
)
from perfc.ir import OPTIMIZER_STATES, Kernel, Record, Work

V100 = load_target("v100-sxm2-16g")
ROWWISE = "rowwise_adagrad"
ALGORITHMS = ("atomic", "warp_per_row", "cta_per_row", "")

batches, poolings = st.integers(1, 4096), st.integers(1, 100)
row_counts, dims = st.integers(1, 10**7), st.integers(1, 256)


def seconds(*kernels: Kernel) -> list[float]:
    """Price kernels with the built-in models."""
    return [float(s) for s in price(kernels, V100, ALL_MODELS).seconds]


@given(rows=row_counts, lookups=st.integers(0, 10**9))
def test_distinct_rows(rows: int, lookups: int) -> None:
    """No more rows are touched than there are, or are looked up; some are."""
    table, count = np.array([float(rows)]), np.array([float(lookups)])

    touched = float(distinct_rows(table, count)[0])

    assert min(1, lookups) * 0.999 <= touched <= min(rows, lookups)


@given(batch=batches, rows=row_counts, pooling=poolings, dim=dims)
@settings(deadline=None)
def test_updates_grow(batch: int, rows: int, pooling: int, dim: int) -> None:
    """More bags, lookups, columns or distinct rows take no less, by any algorithm."""
    for algorithm in ALGORITHMS:
        small, *larger = seconds(
            update(batch, 2, rows, pooling, dim, algorithm=algorithm),
            update(2 * batch, 2, rows, pooling, dim, algorithm=algorithm),
            update(batch, 2, rows, 2 * pooling, dim, algorithm=algorithm),
            update(batch, 2, rows, pooling, 2 * dim, algorithm=algorithm),
            update(batch, 2, 2 * rows, pooling, dim, algorithm=algorithm),
        )

        assert small <= min(larger) * (1 + 1e-9)


@given(
    kernel=st.builds(
        update,
        batches,
        st.integers(1, 26),
        row_counts,
        poolings,
        dims,
        optimizer=st.sampled_from(sorted(OPTIMIZER_STATES)),
        algorithm=st.sampled_from(ALGORITHMS),
        popularity=st.sampled_from(["uniform", "zipf(1.1)"]),
    )
)
@settings(deadline=None)
def test_never_below_the_bound(kernel: Kernel) -> None:
    """No update is faster than the rows that it has to read and write."""
    (least_s,) = lower_bound(KernelTable([kernel]), V100)

    assert 0 < least_s <= seconds(kernel)[0]


def test_states_cost() -> None:
    """A state of every element costs more than one of every row, and that than none."""
    kinds = ("sgd", "rowwise_adagrad", "adagrad", "adam")

    found = seconds(*(update(2048, 8, 10**6, 10, 64, optimizer=k) for k in kinds))

    assert sorted(found) == found
    assert 4 == len(set(found))


def test_sorting_pays_where_rows_repeat() -> None:
    """A thousand lookups a row cost less when each row is written once."""
    atomic, one_by_one = seconds(
        update(65536, 8, 500, 8, 128, algorithm="atomic"),
        update(65536, 8, 500, 8, 128, algorithm="cta_per_row"),
    )

    assert one_by_one < atomic


def test_the_whole_update_sorts_first() -> None:
    """A row of measurements without an algorithm has the sort in it."""
    whole, rows = seconds(
        update(4096, 16, 1024, 1, 64, algorithm=""), update(4096, 16, 1024, 1, 64)
    )

    assert whole > rows + 50e-6


def test_a_gradient_costs_more_than_its_lookup() -> None:
    """Rows that are written back take longer than rows that are read."""
    forward, backward = seconds(
        bag(4096, 8, 10**6, 20, 64), update(4096, 8, 10**6, 20, 64)
    )

    assert 1.2 * forward < backward


def test_few_indices_take_rounds() -> None:
    """The kernel for few indices takes twice as long for twice as many."""

    def kernel(lookups: int) -> Kernel:
        params = Record({"rows": 30_000, "dim": 768, "lookups": lookups})
        work = Work(lookups * 768, lookups * 3072, lookups * 3072)
        return Kernel("embedding_backward", "fp32", "fp32", params, work)

    short, long = seconds(kernel(1024), kernel(2048))

    assert pytest.approx(2, rel=0.15) == long / short


def test_additions_at_indices_take_rounds_of_warps() -> None:
    """V100 has room for 5,120 warps: another round for one more, whatever they add."""

    def kernel(indices: int, outer: int, inner: int = 1) -> Kernel:
        params = Record({"indices": indices, "outer": outer, "inner": inner})
        moved = 4 * indices * outer * inner
        work = Work(moved // 4, 2 * moved + 8 * indices, moved)
        return Kernel("index_add", "fp32", "fp32", params, work)

    full, more, wide = seconds(kernel(5, 1024), kernel(3, 2048), kernel(5, 1024, 4))
    (deep,) = seconds(kernel(351, 2048))

    assert full == wide < more
    assert pytest.approx(320e-6, rel=0.1) == deep  # a trace of DLRM_MLPerf


def test_who_priced_it() -> None:
    """Updates are the model's own, and computed, not fitted."""
    priced = price([update(64, 1, 1000, 2, 64)], V100, ALL_MODELS)

    assert [("embedding-update", Provenance.ANALYTIC)] == list(
        zip(priced.model, priced.provenance, strict=True)
    )


# Kernel times in traces of DLRM_default and DLRM_MLPerf on V100 at batch 2048
# (owensgroup/ml_perf_model, 2021-05; rows of MLPerf's tables are not recorded), and of
# TorchRec on V100 (PARAM, 2023-11): 16 tables of 1024 x 1024, 16,384 bags.
TRACED = [
    (1276.5, update(2048, 8, 10**6, 100, 64, algorithm="atomic")),
    (110.8, update(2048, 26, 10**6, 1, 128, algorithm="atomic")),
    (1604.0, update(16384, 16, 1024, 1, 1024, optimizer="rowwise_adagrad")),
    (
        1865.0,
        update(16384, 16, 1024, 1, 1024, optimizer="rowwise_adagrad", algorithm=""),
    ),
]


@pytest.mark.parametrize(("measured_us", "kernel"), TRACED)
def test_kernels_in_traces(measured_us: float, kernel: Kernel) -> None:
    """Updates in traces are within 30 %."""
    (found_s,) = price([kernel], LIN_V100, ALL_MODELS).seconds

    assert pytest.approx(measured_us, rel=0.3) == found_s * 1e6


def test_samples_of_nvprof() -> None:
    """Ten samples of the atomic kernel on 8 GB of tables are within 30 %."""
    path: Path = DATA / "dlrm_v100" / "kernel_microbench_samples_v100_nvprof.csv"
    if not path.exists():
        pytest.skip(f"no measurements: {path.name} (set PERFC_DATA to their folder)")
    names = ("batch_size", "num_tables", "num_embeddings", "bag_size", "embedding_dim")
    with path.open(encoding="utf-8") as file:
        rows = [
            row for row in csv.DictReader(file) if row["dataset"].startswith("EL_back")
        ]
    kernels = [
        update(*(int(float(row[name])) for name in names), algorithm="atomic")
        for row in rows
    ]

    ratios = [
        found_s * 1e6 / float(row["kernel_runtime"])
        for row, found_s in zip(
            rows, price(kernels, LIN_V100, ALL_MODELS).seconds, strict=True
        )
    ]

    assert 10 == len(ratios)
    assert 0.3 > max(abs(ratio - 1) for ratio in ratios)
