"""shard-embeddings: who holds which table, and what goes between ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.passes.embeddings.shards import (
    BATCH,
    MODEL,
    RANKS,
    exchanged_bytes,
    graph_of,
    node_named,
    nodes_of,
    ops_of,
    sharded,
    tables_of,
    type_of,
    work_of,
)

from perfc.frontends.workloads import build_workload
from perfc.ir import UsageError
from perfc.ir.support import UnsupportedModelError
from perfc.ir.text import parse_program
from perfc.passes import PassManager, ShapeInference, ShardEmbeddings, World
from perfc.passes.embeddings import BatchEmbeddings, TableSize, find_plan
from perfc.passes.parallel import DataParallel
from perfc.passes.training import Training

PLANS = (
    "table-wise",
    "column-wise",
    "row-wise",
    "table-row-wise",
    "grid",
    "data-parallel",
)


@pytest.mark.parametrize("plan", PLANS[:-1])
def test_tables_and_lookups_add_up(plan: str) -> None:
    """All ranks together hold the tables once, and look up as much as all batches."""
    program = sharded(plan=plan)
    whole = 6 * 1000 * 16 * 4
    lookups = 6 * BATCH * 4 * 16 * RANKS
    graphs = [graph_of(program, rank) for rank in range(RANKS)]

    assert RANKS == program.replicas
    assert list(range(RANKS)) == sorted(r for c in program.classes for r in c.ranks)
    assert whole == sum(sum(tables_of(graph)) for graph in graphs)
    assert lookups == sum(
        work_of(n).flops for g in graphs for n in nodes_of(g, "embedding_bag")
    )


def test_data_parallel_tables_stay() -> None:
    """Every rank has them whole; their gradients are dense, to be all-reduced."""
    program = sharded(plan="data-parallel", optimizer="rowwise_adagrad")
    (rank,) = program.classes
    graph = ops_of(rank)
    backward = nodes_of(graph, "embedding_bag_backward", "backward")

    assert tuple(range(RANKS)) == rank.ranks
    assert 6 * 1000 * 16 * 4 == sum(tables_of(graph))
    assert ["f32[1000,16]"] * 6 == [str(node.results[0].type) for node in backward]
    assert not nodes_of(graph, "all_to_all")


@given(tables=st.integers(1, 9), ranks=st.integers(2, 6), pooling=st.integers(1, 5))
def test_bytes_of_table_wise_exchanges(tables: int, ranks: int, pooling: int) -> None:
    """Indices: pooling x batch x ranks x 8 a table; rows: batch x ranks x dim x 4."""
    model = f"dlrm-ddp:tables={tables},rows=50,dim=8,pooling={pooling}"
    program = sharded(model, ranks=ranks, per_node=1)
    most = -(-tables // ranks)
    sent, got = 8 * tables * BATCH * pooling, 8 * most * BATCH * ranks * pooling
    for rank in range(ranks):
        graph = graph_of(program, rank)
        own = len(nodes_of(graph, "embedding_bag")) and len(list(tables_of(graph)))
        indices = node_named(graph, "table_wise.indices.all_to_all")
        rows = node_named(graph, "table_wise.output.all_to_all")

        assert own * BATCH * ranks * pooling * 8 == type_of(indices.results[0]).nbytes
        assert own * BATCH * ranks * 8 * 4 == type_of(rows.operands[0]).nbytes
        assert tables * BATCH * 8 * 4 == type_of(rows.results[0]).nbytes
        assert max(sent, got) == exchanged_bytes(indices)
        assert BATCH * 32 * max(tables, most * ranks) == exchanged_bytes(rows)


def test_gradients_go_back() -> None:
    """Backward sends as many bytes as forward got, and updates tables at once."""
    graph = graph_of(sharded(optimizer="adam"), 0)
    (forward,) = [n for n in nodes_of(graph, "all_to_all") if "output" in n.name]
    (back,) = nodes_of(graph, "all_to_all", "backward")
    (update,) = nodes_of(graph, "embedding_bag_backward", "backward")

    assert type_of(forward.results[0]).nbytes == type_of(back.operands[0]).nbytes
    assert forward.operands[0].type == back.results[0].type
    assert forward.attributes.get("bytes") == back.attributes.get("bytes")
    assert "adam" == update.attributes["optimizer"]


def test_shared_rows_are_added_up() -> None:
    """Row-wise: partial sums of all samples are scattered, gradients gathered."""
    graph = graph_of(sharded(plan="row-wise", optimizer="sgd"), 0)
    (scatter,) = nodes_of(graph, "reduce_scatter")
    (gather,) = nodes_of(graph, "all_gather", "backward")

    assert (BATCH * RANKS, 6 * 16) == type_of(scatter.operands[0]).shape
    assert (BATCH, 6 * 16) == type_of(scatter.results[0]).shape
    assert (BATCH * RANKS, 6 * 16) == type_of(gather.results[0]).shape


def test_rows_of_a_node() -> None:
    """Table-row-wise: sums inside a node, then rows between equal places of nodes."""
    graph = graph_of(sharded(plan="table-row-wise"), 3)
    (scatter,) = nodes_of(graph, "reduce_scatter")
    rows = node_named(graph, "table_row_wise.output.all_to_all")

    assert 2 == scatter.attributes["ranks"]
    assert (2, 2) == (rows.attributes["ranks"], rows.attributes["stride"])
    assert (BATCH * 2, 3 * 16) == type_of(rows.operands[0]).shape


def test_ranks_that_hold_alike_are_one_class() -> None:
    """Eight equal tables on four ranks: one class; six tables: two."""
    even = sharded("dlrm-ddp:tables=8,rows=50,dim=8,pooling=1")
    uneven = sharded("dlrm-ddp:tables=6,rows=50,dim=8,pooling=1")

    assert [(0, 1, 2, 3)] == [c.ranks for c in even.classes]
    assert [(0, 1), (2, 3)] == [c.ranks for c in uneven.classes]


def test_batched_tables_are_sharded_too() -> None:
    """A lookup of all tables at once is taken apart like one a table."""
    batched = graph_of(sharded(f"{MODEL},embedding=batched"), 0)
    single = graph_of(sharded(), 0)
    sizes = [
        [str(node.results[0].type) for node in nodes_of(graph, "all_to_all")]
        for graph in (batched, single)
    ]

    assert sizes[0][-1] == sizes[1][-1]
    assert [t.replace("i32", "i64") for t in sizes[0]] == [
        t.replace("i32", "i64") for t in sizes[1]
    ]


def test_lookups_stand_where_the_model_has_them() -> None:
    """Without `early` the dense features are computed first."""
    late = graph_of(sharded(early=False), 0)
    early = graph_of(sharded(), 0)

    assert "linear" == next(iter(late)).op
    assert next(iter(early)).name.startswith("table_wise.splits")


def test_rows_come_back_while_dense_features_are_computed() -> None:
    """They are sent before the bottom MLP, and joined after it: nothing waits."""
    names = [node.name for node in graph_of(sharded(), 0)]
    order = (
        *("table_wise.output.all_to_all", "bot_l.0.linear", "bot_l.4.linear"),
        *("table_wise.output.concat", "interact.cat"),
    )

    assert sorted(map(names.index, order)) == [names.index(name) for name in order]


@pytest.mark.parametrize(
    ("dim", "columns"), [(16, 16), (64, 32), (96, 32), (100, 100), (120, 40), (512, 32)]
)
@pytest.mark.parametrize("plan", ["column-wise", "grid"])
def test_parts_of_named_plans_have_32_columns(
    plan: str, dim: int, columns: int
) -> None:
    """Or more, and a multiple of four; narrower tables are not cut."""
    sizes = [TableSize("t", dim, 1.0)]
    placed = find_plan(plan, sizes, World(16, 1))["t"]

    assert columns == dim // len(placed.places)


DENSE = "bot_l.0.weight.grad"
"""What the backward pass of the dense features makes last but one."""


def _order(*results: str, plan: str, functional: bool = False) -> bool:
    """Whether a training step makes these results in this order."""
    program = sharded(optimizer="sgd", plan=plan, functional=functional)
    graph = graph_of(program, 0)
    made = [value.name for node in graph for value in node.results]
    places = [made.index(name) for name in results]
    return sorted(places) == places


@pytest.mark.parametrize(
    ("plan", "back"),
    [
        ("table-wise", "table_wise.output.all_to_all.all_to_all"),
        ("row-wise", "row_wise.output.reduce_scatter.all_gather"),
        ("grid", "table_row_wise.output.all_to_all.all_to_all"),
    ],
)
def test_gradients_of_rows_go_back_beside_the_dense_layers(
    plan: str, back: str
) -> None:
    """They are sent once complete, after the interaction, and read at the end."""
    readers = ("interact.cat.slice", back, DENSE)

    assert _order(*readers, plan=plan)
    assert _order("interact.cat.slice", DENSE, back, plan=plan, functional=True)


def test_sums_of_a_node_go_back_where_they_were_made() -> None:
    """TorchRec waits for the scatter at once: between the exchange and the lookups."""
    group = "table_row_wise.output"
    gather = f"{group}.reduce_scatter.all_gather"

    assert _order(f"{group}.all_to_all.all_to_all", DENSE, gather, plan="grid")


def test_gradients_of_rows_are_issued_before_the_last_bucket() -> None:
    """The order on the communication stream is that of issue: buckets fill later."""
    passes = (
        *(ShapeInference(), ShardEmbeddings(ranks=RANKS), ShapeInference()),
        *(Training(), DataParallel(world=RANKS), ShapeInference()),
    )
    program = PassManager(passes).run(build_workload(MODEL)).program
    sent = [
        node.op
        for node in graph_of(program, 0)
        if node.op in ("all_reduce", "all_to_all") and node.location.phase == "backward"
    ]

    assert "all_to_all" in sent
    assert ["all_to_all", "all_reduce"] == sent[-2:]


def _plan(folder: Path, tables: object) -> str:
    path = folder / "plan.json"
    path.write_text(json.dumps({"tables": tables}))
    return str(path)


def _entries(**changes: object) -> dict[str, object]:
    entry = {"sharding_type": "table_wise", "ranks": [1]}
    return {f"emb_l.{n}": dict(entry) for n in range(6)} | changes


def test_a_plan_file_decides(tmp_path: Path) -> None:
    """Each table goes where the file says; parts of columns are joined in order."""
    changes = {
        "emb_l.0": {"sharding_type": "column_wise", "ranks": [3, 2]},
        "emb_l.1": {"sharding_type": "row_wise", "ranks": [0, 1, 2, 3]},
        "emb_l.2": {"sharding_type": "data_parallel"},
        "emb_l.3": {"sharding_type": "table_row_wise", "ranks": [2]},
        "emb_l.4": {"sharding_type": "grid_shard", "ranks": [0, 2]},
    }
    program = sharded(plan=_plan(tmp_path, _entries(**changes)))
    held = [sum(tables_of(graph_of(program, rank))) for rank in range(RANKS)]
    row = 1000 * 4
    shared = 16 * row // 4 + 16 * row + 16 * row // 4

    assert [
        shared,
        shared + 16 * row,
        shared + 8 * row + 8 * row,
        shared + 8 * row + 8 * row,
    ] == held
    (join,) = [
        node
        for node in nodes_of(graph_of(program, 0), "concat")
        if node.name == "emb_l.0.bag.concat"
    ]
    assert ["table_wise.split.split.2", "table_wise.split.split.1"] == [
        value.name for value in join.operands
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"ranks": 6, "per_node": 4, "plan": "grid"},
            "per-node=4 .* 6 ranks do not go evenly",
        ),
        ({"per_node": 0}, "per-node=0"),
        ({"qcomm": "int3"}, "qcomm='int3' .* expected fp16, bf16, fp8, int8"),
        (
            {"qcomm": "fp16", "qcomm_backward": "int4"},
            "qcomm-backward='int4' .* fp8, int8, fp32",
        ),
        ({"qcomm_backward": "bf16"}, "qcomm-backward .* goes with qcomm"),
    ],
)
def test_bad_options(options: dict[str, Any], problem: str) -> None:
    """An option that makes no sense is named."""
    with pytest.raises(UsageError, match=problem):
        sharded(**options)


def test_only_plans_that_share_rows_in_nodes_need_full_nodes() -> None:
    """Twelve ranks of nodes of eight can hold whole tables."""
    assert 12 == sharded(ranks=12, per_node=8).replicas


def test_means_cannot_share_rows() -> None:
    """A mean is not the sum of means: tables are not cut into rows."""
    text = """
    graph @g(%i: i64[8], %o: i64[4], param %w: f32[100,8]) {
      %a = embedding_bag(%w, %i, %o)
        {tables = [{rows = 100, dim = 8}], mode = "mean", has_offsets = true} : ?
      return %a
    }
    """
    passes = [ShapeInference(), ShardEmbeddings(ranks=2, plan="row-wise")]

    with pytest.raises(UnsupportedModelError, match="takes the mean of a bag"):
        PassManager(passes).run(parse_program(text))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mode": "max"}, "takes the largest row"),
        ({"padding_index": 3}, "has a padding index"),
    ],
)
def test_bags_that_cannot_be_sharded(changes: dict[str, object], problem: str) -> None:
    """Lookups that no exchange does are refused by name."""
    program = build_workload(MODEL)
    graph = ops_of(program.classes[0])
    bag = nodes_of(graph, "embedding_bag")[2]
    graph.set_attributes(bag, **changes)  # type: ignore[arg-type]

    with pytest.raises(UnsupportedModelError, match=f"emb_l.2.bag.* {problem}"):
        PassManager([ShapeInference(), ShardEmbeddings(ranks=2)]).run(program)


def test_tables_are_batched_before_they_are_sharded() -> None:
    """`batch-embeddings` in front changes nothing that goes between ranks."""
    passes = (
        ShapeInference(),
        BatchEmbeddings(),
        ShapeInference(),
        ShardEmbeddings(ranks=RANKS),
        ShapeInference(),
    )
    program = (
        PassManager(passes).run(build_workload(MODEL)).program.bind({"batch": BATCH})
    )

    assert [
        n.results[0].type for n in nodes_of(graph_of(sharded(), 0), "all_to_all")
    ] == [n.results[0].type for n in nodes_of(graph_of(program, 0), "all_to_all")]


def test_data_parallel_after_it_reduces_the_rest() -> None:
    """As many replicas: no rank more, and gradients of MLPs alone are all-reduced."""
    passes = (
        *(ShapeInference(), ShardEmbeddings(ranks=RANKS), ShapeInference()),
        *(Training(), DataParallel(world=RANKS), ShapeInference()),
    )
    program = PassManager(passes).run(build_workload(MODEL)).program
    graph = graph_of(program, 3)
    dense = sum(
        int(type_of(v).nbytes)
        for v in graph.parameters
        if ".weight.shard" not in v.name and not v.name.startswith("emb_l")
    )

    assert list(range(RANKS)) == sorted(r for c in program.classes for r in c.ranks)
    assert dense == sum(
        int(type_of(node.results[0]).nbytes)
        for node in graph
        if node.op == "all_reduce"
    )


def test_data_parallel_over_another_number_is_refused() -> None:
    """Ranks that share tables are those that have a batch each."""
    passes = (
        *(ShapeInference(), ShardEmbeddings(ranks=4, plan="data-parallel")),
        *(ShapeInference(), DataParallel(ranks=8)),
    )

    with pytest.raises(UsageError, match="sharded over 4 ranks, and 8"):
        PassManager(passes).run(build_workload(MODEL))


def test_parts_of_nodes_meet_in_their_own_node() -> None:
    """Ranks that hold alike on two nodes, but not on all ranks, are told apart."""
    placed: dict[str, object] = {
        "emb_l.0": {"sharding_type": "table_wise", "ranks": [1]},
        "emb_l.1": {"sharding_type": "grid_shard", "ranks": [0, 2]},
    }
    model = "dlrm-ddp:tables=2,rows=1000,dim=16,pooling=4"
    program = sharded(model, plan=json.dumps({"tables": placed}))

    assert [(0,), (1,), (2, 3)] == sorted(c.ranks for c in program.classes)
    for rank in range(RANKS):
        groups = {
            node.attributes.text("group")
            for node in nodes_of(graph_of(program, rank), "reduce_scatter")
        }
        assert {f"emb.node{rank // 2}"} == groups
