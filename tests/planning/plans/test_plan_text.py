"""Plans as JSON: what perfc writes, and what it reads of TorchRec's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.ir import PerfcError
from perfc.passes import Placement, Plan, World
from perfc.passes.embeddings import TableSize, read_plan
from perfc.planning.plans import Table, plan_line, plan_text

WORLD = World(8, 4)


def _table(name: str, rows: int = 1001, dim: int = 64) -> Table:
    return Table(name=name, rows=rows, dim=dim, pooling=2.0)


def _sizes(tables: list[Table]) -> list[TableSize]:
    return [TableSize(t.name, t.dim, t.dim * t.pooling) for t in tables]


def _ranks(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    few = st.lists(st.integers(0, 7), min_size=count, max_size=count, unique=True)
    return few.map(lambda ranks: tuple(sorted(ranks)))


PLACEMENTS = st.one_of(
    _ranks(1).map(lambda r: Placement("table_wise", r)),
    _ranks(4).map(lambda r: Placement("column_wise", r)),
    st.sampled_from([(0,), (1,)]).map(lambda n: Placement("table_row_wise", n)),
    st.sampled_from([(0,), (0, 1)]).map(lambda n: Placement("grid_shard", n)),
    st.just(Placement("row_wise")),
    st.just(Placement("data_parallel")),
    _ranks(1).map(lambda r: Placement("table_wise", r, "fused_uvm")),
    st.floats(0.0, 1.0, exclude_min=True).map(
        lambda share: Placement("row_wise", (), "fused_uvm_caching", share)
    ),
)


@given(st.lists(PLACEMENTS, min_size=1, max_size=6))
def test_what_is_written_is_read(placements: list[Placement]) -> None:
    """Every plan comes back as it was, from one line too."""
    tables = [_table(f"emb.{n}") for n in range(len(placements))]
    plan: Plan = {t.name: p for t, p in zip(tables, placements, strict=True)}

    for written in (plan_text, plan_line):
        text = written(plan, tables, WORLD)
        assert plan == read_plan(text, _sizes(tables), WORLD, "")


@given(PLACEMENTS, st.integers(1, 50))
def test_shards_are_the_table(placement: Placement, rows: int) -> None:
    """The shards of a table cover each of its elements once."""
    table = _table("t", rows=rows)
    entry = json.loads(plan_text({"t": placement}, [table], WORLD))["tables"]["t"]
    spec: dict[str, Any] = entry["sharding_spec"] or {"shards": []}
    sizes = [shard["shard_sizes"] for shard in spec["shards"]]
    covered = {
        (row, first + column)
        for shard in spec["shards"]
        for (start, first), (count, width) in [
            (shard["shard_offsets"], shard["shard_sizes"])
        ]
        for row in range(start, start + count)
        for column in range(width)
    }

    whole = 0 if placement.kind == "data_parallel" else rows * 64
    assert whole == sum(count * width for count, width in sizes) == len(covered)


def _torchrec(**entry: object) -> str:
    """A plan as TorchRec's classes are written out, module by module."""
    return json.dumps({"sparse.ebc": {"t0": {"compute_kernel": "fused", **entry}}})


@pytest.mark.parametrize(
    ("name", "entry", "expected"),
    [
        ("t0", {"sharding_type": "table_wise", "ranks": [3]}, ("table_wise", (3,))),
        (
            "sparse.ebc.t0",
            {"sharding_type": "row_wise", "ranks": [*range(8)]},
            ("row_wise", ()),
        ),
        (
            "sparse.ebc.embedding_bags.t0",
            {"sharding_type": "table_row_wise", "ranks": [4, 5, 6, 7]},
            ("table_row_wise", (1,)),
        ),
        (
            "ebc.t0",
            {"sharding_type": "grid_shard", "ranks": [*range(8)]},
            ("grid_shard", (0, 1)),
        ),
    ],
)
def test_plans_of_torchrec(
    name: str, entry: dict[str, object], expected: tuple[str, tuple[int, ...]]
) -> None:
    """Tables go by module and name; nodes by all their ranks."""
    sizes = [TableSize(name, 64, 64.0)]

    found = read_plan(_torchrec(**entry), sizes, WORLD, "plan")
    assert {name: Placement(*expected)} == found
    wrapped = json.dumps({"plan": json.loads(_torchrec(**entry))})
    assert found == read_plan(wrapped, sizes, WORLD, "plan")


@pytest.mark.parametrize(
    ("said", "tier", "cache"),
    [
        ({"compute_kernel": "fused"}, "", 0.2),
        ({"compute_kernel": None}, "", 0.2),
        ({"compute_kernel": "fused_uvm"}, "uvm", 0.2),
        ({"compute_kernel": "fused_uvm_caching"}, "uvm-caching", 0.2),
        (
            {"compute_kernel": "fused_uvm_caching", "cache_params": None},
            "uvm-caching",
            0.2,
        ),
        (
            {
                "compute_kernel": "fused_uvm_caching",
                "cache_params": {"algorithm": 1, "load_factor": 0.05},
            },
            "uvm-caching",
            0.05,
        ),
    ],
)
def test_compute_kernels_say_the_tier(
    said: dict[str, object], tier: str, cache: float
) -> None:
    """Both formats say by the kernel where rows lie, and how many a cache holds."""
    entry = {"sharding_type": "row_wise", **said}
    theirs = _torchrec(**entry)
    ours = json.dumps({"tables": {"t0": entry}})
    for text in (theirs, ours):
        found = read_plan(text, [TableSize("t0", 64, 64.0)], WORLD, "plan")["t0"]
        assert (tier, cache) == (found.tier, found.cache)


def _kernel(name: object, kind: str = "row_wise", **more: object) -> str:
    return _torchrec(sharding_type=kind, compute_kernel=name, **more)


def _cached(share: object) -> str:
    return _kernel("fused_uvm_caching", cache_params={"load_factor": share})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            _kernel("key_value"),
            "compute_kernel 'key_value' of row_wise, expected fused",
        ),
        (_kernel("dense"), "compute_kernel 'dense' of row_wise, expected fused"),
        (_kernel("quant"), "compute_kernel 'quant' of row_wise, expected fused"),
        (_kernel(["fused"]), "compute_kernel ['fused'] of row_wise, expected fused"),
        (
            _kernel("fused_uvm", "data_parallel"),
            "compute_kernel 'fused_uvm' of data_parallel, expected dense",
        ),
        (_cached(0), "load_factor 0, expected more than 0, up to 1"),
        (_cached(1.5), "load_factor 1.5, expected more than 0, up to 1"),
        (_cached(float("nan")), "load_factor is nan, expected"),
        (_cached(True), "load_factor True, expected"),
        (_cached("0.2"), "load_factor '0.2', expected"),
    ],
)
def test_kernels_that_are_none(text: str, problem: str) -> None:
    """A kernel that perfc does not know is never taken for the usual one."""
    with pytest.raises(PerfcError) as raised:
        read_plan(text, [TableSize("t0", 64, 64.0)], WORLD, "plan")
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "expected {"),
        ("{", "cannot be read as a JSON file"),
        ('{"tables": 3}', "expected {"),
        ("[" * 100_000, "cannot be read as a JSON file"),
        ('{"a": {}}', "nothing is said of the tables t0"),
        ('{"a": {"t0": {}, "x": {}}}', "no table 'x'"),
        (
            json.dumps({m: {"t0": {"sharding_type": "row_wise"}} for m in "ab"}),
            "table 't0' is said twice",
        ),
        (
            _torchrec(sharding_type="table_wise", ranks=[8]),
            "rank 8 is not among 0 to 7",
        ),
        (
            _torchrec(sharding_type="table_row_wise", ranks=[2, 3, 4, 5]),
            "wants one rank, or all 4 of a node, got",
        ),
        (
            _torchrec(sharding_type="table_column_wise", ranks=[0, 1]),
            "sharding_type 'table_column_wise' is none of table_wise",
        ),
        (
            _torchrec(sharding_type="table_wise", ranks=[0], compute_kernel="dense"),
            "compute_kernel 'dense' of table_wise",
        ),
        (
            _torchrec(sharding_type="data_parallel", compute_kernel=["fused"]),
            "compute_kernel ['fused'] of data_parallel",
        ),
    ],
)
def test_plans_that_are_none(text: str, problem: str) -> None:
    """What is wrong is said, and where."""
    with pytest.raises(PerfcError, match="plan: ") as raised:
        read_plan(text, [TableSize("t0", 64, 64.0)], WORLD, "plan")
    assert problem in str(raised.value)


def test_a_plan_keeps_its_compute_kernel() -> None:
    """What TorchRec's rules were asked about is written, not what is usual."""
    plan = {"t": Placement("row_wise", compute_kernel="fused_uvm")}
    entry = json.loads(plan_text(plan, [_table("t")], WORLD))["tables"]["t"]

    assert "fused_uvm" == entry["compute_kernel"]
