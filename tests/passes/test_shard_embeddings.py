"""shard-embeddings: who holds which table, and what goes between ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.frontends import build_workload
from perfc.ir import (
    BUILTIN_OPS,
    Graph,
    Node,
    Program,
    RankClass,
    TensorType,
    UnsupportedModelError,
    UsageError,
    Work,
    bound_copy,
    parse_program,
    verify,
)
from perfc.passes import (
    BatchEmbeddings,
    DataParallel,
    Pass,
    PassManager,
    ShapeInference,
    ShardEmbeddings,
    TableSize,
    Training,
    World,
    find_plan,
)

BATCH, RANKS = 16, 4
MODEL = "dlrm-ddp:tables=6,rows=1000,dim=16,pooling=4"
PLANS = (
    "table-wise",
    "column-wise",
    "row-wise",
    "table-row-wise",
    "grid",
    "data-parallel",
)


def _sharded(model: str = MODEL, optimizer: str = "", **options: object) -> Program:
    """Shard a workload, with its training step if there is an optimizer."""
    settings = {"ranks": RANKS, "per_node": 2, **options}
    sharding = ShardEmbeddings(**settings)  # type: ignore[arg-type]
    passes: list[Pass] = [ShapeInference(), sharding, ShapeInference()]
    if optimizer:
        passes.append(Training(optimizer=optimizer))
    program = PassManager(passes).run(build_workload(model)).program
    for rank in program.classes:
        verify(_ops(rank), BUILTIN_OPS)
    return program.bind({"batch": BATCH})


def _ops(rank: RankClass) -> Graph:
    assert rank.ops is not None
    return rank.ops


def _graph(program: Program, rank: int) -> Graph:
    (found,) = [c for c in program.classes if rank in c.ranks]
    return _ops(found)


def _nodes(graph: Graph, op: str, phase: str = "forward") -> list[Node]:
    return [n for n in graph if n.op == op and n.location.phase == phase]


def _type(value: object) -> TensorType:
    type_ = getattr(value, "type", None)
    assert isinstance(type_, TensorType)
    return type_.bind({"batch": BATCH})


def _work(node: Node) -> Work:
    operands, results = map(_type, node.operands), map(_type, node.results)
    return BUILTIN_OPS[node.op].work(node.attributes, [*operands], [*results])


def _tables(graph: Graph) -> Iterator[int]:
    """Yield the bytes of the tables of a graph."""
    for node in _nodes(graph, "embedding_bag"):
        for value in node.operands[: len(node.attributes.records("tables"))]:
            yield int(_type(value).nbytes)


def _by_name(graph: Graph, name: str) -> Node:
    (found,) = [node for node in graph if node.name == name]
    return found


@pytest.mark.parametrize("plan", PLANS[:-1])
def test_tables_and_lookups_add_up(plan: str) -> None:
    """All ranks together hold the tables once, and look up as much as all batches."""
    program = _sharded(plan=plan)
    whole = 6 * 1000 * 16 * 4
    lookups = 6 * BATCH * 4 * 16 * RANKS
    graphs = [_graph(program, rank) for rank in range(RANKS)]

    assert RANKS == program.replicas
    assert list(range(RANKS)) == sorted(r for c in program.classes for r in c.ranks)
    assert whole == sum(sum(_tables(graph)) for graph in graphs)
    assert lookups == sum(
        _work(n).flops for g in graphs for n in _nodes(g, "embedding_bag")
    )


def test_data_parallel_tables_stay() -> None:
    """Every rank has them whole; their gradients are dense, to be added up."""
    program = _sharded(plan="data-parallel", optimizer="rowwise_adagrad")
    (rank,) = program.classes
    graph = _ops(rank)
    backward = _nodes(graph, "embedding_bag_backward", "backward")

    assert tuple(range(RANKS)) == rank.ranks
    assert 6 * 1000 * 16 * 4 == sum(_tables(graph))
    assert ["f32[1000,16]"] * 6 == [str(node.results[0].type) for node in backward]
    assert not _nodes(graph, "all_to_all")


@given(tables=st.integers(1, 9), ranks=st.integers(2, 6), pooling=st.integers(1, 5))
def test_bytes_of_table_wise_exchanges(tables: int, ranks: int, pooling: int) -> None:
    """Indices: pooling x batch x ranks x 8 a table; rows: batch x ranks x dim x 4."""
    model = f"dlrm-ddp:tables={tables},rows=50,dim=8,pooling={pooling}"
    program = _sharded(model, ranks=ranks, per_node=1)
    most = -(-tables // ranks)
    sent, got = 8 * tables * BATCH * pooling, 8 * most * BATCH * ranks * pooling
    for rank in range(ranks):
        graph = _graph(program, rank)
        own = len(_nodes(graph, "embedding_bag")) and len(list(_tables(graph)))
        indices = _by_name(graph, "table_wise.indices.all_to_all")
        rows = _by_name(graph, "table_wise.output.all_to_all")

        assert own * BATCH * ranks * pooling * 8 == _type(indices.results[0]).nbytes
        assert own * BATCH * ranks * 8 * 4 == _type(rows.operands[0]).nbytes
        assert tables * BATCH * 8 * 4 == _type(rows.results[0]).nbytes
        assert max(sent, got) == _exchanged(indices)
        assert BATCH * 32 * max(tables, most * ranks) == _exchanged(rows)


def _exchanged(node: Node) -> int:
    """Return the bytes that the slowest rank sends or gets."""
    stated = node.attributes.get("bytes")
    if stated is None:
        return int(_type(node.operands[0]).nbytes)
    bound = parse_program(
        f'graph @g(%x: f32[batch]) {{ %y = all_to_all(%x) {{group = "g", ranks = 2, '
        f"bytes = <{stated}>}} : f32[batch] return %y }}"
    )
    (found,) = [
        n.attributes["bytes"]
        for n in bound_copy(_ops(bound.classes[0]), {"batch": BATCH})
    ]
    assert isinstance(found, int)
    return found


def test_gradients_go_back() -> None:
    """Backward sends as many bytes as forward got, and updates tables at once."""
    graph = _graph(_sharded(optimizer="adam"), 0)
    (forward,) = [n for n in _nodes(graph, "all_to_all") if "output" in n.name]
    (back,) = _nodes(graph, "all_to_all", "backward")
    (update,) = _nodes(graph, "embedding_bag_backward", "backward")

    assert _type(forward.results[0]).nbytes == _type(back.operands[0]).nbytes
    assert forward.operands[0].type == back.results[0].type
    assert forward.attributes.get("bytes") == back.attributes.get("bytes")
    assert "adam" == update.attributes["optimizer"]


def test_shared_rows_are_added_up() -> None:
    """Row-wise: partial sums of all samples are scattered, gradients gathered."""
    graph = _graph(_sharded(plan="row-wise", optimizer="sgd"), 0)
    (scatter,) = _nodes(graph, "reduce_scatter")
    (gather,) = _nodes(graph, "all_gather", "backward")

    assert (BATCH * RANKS, 6 * 16) == _type(scatter.operands[0]).shape
    assert (BATCH, 6 * 16) == _type(scatter.results[0]).shape
    assert (BATCH * RANKS, 6 * 16) == _type(gather.results[0]).shape


def test_rows_of_a_node() -> None:
    """Table-row-wise: sums inside a node, then rows between equal places of nodes."""
    graph = _graph(_sharded(plan="table-row-wise"), 3)
    (scatter,) = _nodes(graph, "reduce_scatter")
    rows = _by_name(graph, "table_row_wise.output.all_to_all")

    assert 2 == scatter.attributes["ranks"]
    assert (2, 2) == (rows.attributes["ranks"], rows.attributes["stride"])
    assert (BATCH * 2, 3 * 16) == _type(rows.operands[0]).shape


def test_quantized_communication() -> None:
    """Rows are sent in half the bytes, forward and backward; codecs stand around."""
    graph = _graph(_sharded(qcomm="bf16", optimizer="sgd"), 0)
    rows = _by_name(graph, "table_wise.output.all_to_all")
    (back,) = _nodes(graph, "all_to_all", "backward")

    assert BATCH * 6 * 16 * 2 == _type(rows.results[0]).nbytes
    assert "bf16" == _type(back.results[0]).dtype.name
    assert 1 == len(_nodes(graph, "encode_rows", "backward"))
    assert 1 == len(_nodes(graph, "decode_rows", "backward"))


WIRE = {"fp32": (4.0, "f32"), "fp16": (2.0, "f16"), "bf16": (2.0, "bf16")}
WIRE |= {"fp8": (1.0, "f8e4m3"), "int8": (1.25, "u8")}
"""Bytes of a number on its way, and what holds them: 40 bytes for 32 in int8."""


@pytest.mark.parametrize("back", WIRE)
@pytest.mark.parametrize("forth", ["fp16", "bf16", "fp8", "int8"])
@pytest.mark.parametrize("tables", [4, 6])
def test_each_direction_has_its_precision(forth: str, back: str, tables: int) -> None:
    """Both ends agree; ranks that have more tables than others send more."""
    model = f"dlrm-ddp:tables={tables},rows=1000,dim=16,pooling=4"
    program = _sharded(model, qcomm=forth, qcomm_backward=back, optimizer="sgd")
    graph = _graph(program, 0)
    rows = _by_name(graph, "table_wise.output.all_to_all")
    (again,) = _nodes(graph, "all_to_all", "backward")
    (update,) = _nodes(graph, "embedding_bag_backward", "backward")
    most = BATCH * 16 * RANKS * -(-tables // RANKS)
    received = BATCH * 16 * tables

    assert (WIRE[forth][1], WIRE[back][1]) == (
        _type(rows.results[0]).dtype.name,
        _type(again.results[0]).dtype.name,
    )
    assert received * WIRE[forth][0] == _type(rows.results[0]).nbytes
    assert received * WIRE[back][0] == _type(again.operands[0]).nbytes
    assert most * WIRE[back][0] == _type(again.results[0]).nbytes
    assert most * WIRE[forth][0] == _exchanged(rows)
    assert most * WIRE[back][0] == _exchanged(again)
    assert "f32" in {_type(value).dtype.name for value in update.operands}


@pytest.mark.parametrize("asked", ["fp8", "int8"])
def test_sums_fall_back_to_16_bits(asked: str) -> None:
    """TorchRec's registry of codecs: fp16 forward, bf16 backward, and it is said."""
    options = {"ranks": RANKS, "per_node": 2, "plan": "grid", "qcomm": asked}
    passes = (ShapeInference(), ShardEmbeddings(**options), ShapeInference())  # type: ignore[arg-type]
    result = PassManager((*passes, Training())).run(build_workload(MODEL))
    graph = _graph(result.program, 0)
    (scatter,) = _nodes(graph, "reduce_scatter")
    (gather,) = _nodes(graph, "all_gather", "backward")
    (exchange,) = [n for n in _nodes(graph, "all_to_all") if "output" in n.name]
    (back,) = _nodes(graph, "all_to_all", "backward")
    sent = [_type(n.results[0]).dtype.name for n in (scatter, gather, exchange, back)]
    said = [d.message for d in result.diagnostics if d.code == "qcomm-of-sums"]

    assert ["f16", "bf16", *[WIRE[asked][1]] * 2] == sent
    assert 1 == len(said)
    assert "as fp16, and their gradients as bf16" in said[0]


def test_whole_tables_do_not_fall_back() -> None:
    """Nothing is said where nothing is added up, or all can be."""
    for options in ({"qcomm": "int8"}, {"qcomm": "bf16", "plan": "row-wise"}):
        passes = (ShapeInference(), ShardEmbeddings(ranks=RANKS, **options))
        result = PassManager(passes).run(build_workload(MODEL))

        assert ["sharded-tables"] == [d.code for d in result.diagnostics]


def test_ranks_that_hold_alike_are_one_class() -> None:
    """Eight equal tables on four ranks: one class; six tables: two."""
    even = _sharded("dlrm-ddp:tables=8,rows=50,dim=8,pooling=1")
    uneven = _sharded("dlrm-ddp:tables=6,rows=50,dim=8,pooling=1")

    assert [(0, 1, 2, 3)] == [c.ranks for c in even.classes]
    assert [(0, 1), (2, 3)] == [c.ranks for c in uneven.classes]


def test_batched_tables_are_dealt_too() -> None:
    """A look-up of all tables at once is taken apart like one a table."""
    batched = _graph(_sharded(f"{MODEL},embedding=batched"), 0)
    single = _graph(_sharded(), 0)
    sizes = [
        [str(node.results[0].type) for node in _nodes(graph, "all_to_all")]
        for graph in (batched, single)
    ]

    assert sizes[0][-1] == sizes[1][-1]
    assert [t.replace("i32", "i64") for t in sizes[0]] == [
        t.replace("i32", "i64") for t in sizes[1]
    ]


def test_lookups_stand_where_the_model_has_them() -> None:
    """Without `early` the dense features are computed first."""
    late = _graph(_sharded(early=False), 0)
    early = _graph(_sharded(), 0)

    assert "linear" == next(iter(late)).op
    assert next(iter(early)).name.startswith("table_wise.splits")


def test_rows_come_back_while_dense_features_are_computed() -> None:
    """They are sent before the bottom MLP, and joined behind it: nothing waits."""
    names = [node.name for node in _graph(_sharded(), 0)]
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


def _order(*results: str, **options: object) -> bool:
    """Whether a training step makes these results in this order."""
    graph = _graph(_sharded(optimizer="sgd", **options), 0)
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
    """They are sent once complete, behind the interaction, and read at the end."""
    readers = ("interact.cat.slice", back, DENSE)

    assert _order(*readers, plan=plan)
    assert _order("interact.cat.slice", DENSE, back, plan=plan, functional=True)


def test_sums_of_a_node_go_back_where_they_were_made() -> None:
    """TorchRec waits for the scatter at once: between the exchange and the look-ups."""
    deal = "table_row_wise.output"
    gather = f"{deal}.reduce_scatter.all_gather"

    assert _order(f"{deal}.all_to_all.all_to_all", DENSE, gather, plan="grid")


def test_gradients_of_rows_are_issued_before_the_last_bucket() -> None:
    """The order on the communication stream is that of issue: buckets fill later."""
    passes = (
        *(ShapeInference(), ShardEmbeddings(ranks=RANKS), ShapeInference()),
        *(Training(), DataParallel(world=RANKS), ShapeInference()),
    )
    program = PassManager(passes).run(build_workload(MODEL)).program
    sent = [
        node.op
        for node in _graph(program, 0)
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
    program = _sharded(plan=_plan(tmp_path, _entries(**changes)))
    held = [sum(_tables(_graph(program, rank))) for rank in range(RANKS)]
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
        for node in _nodes(_graph(program, 0), "concat")
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
        _sharded(**options)


def test_only_plans_that_share_rows_in_nodes_need_full_nodes() -> None:
    """Twelve ranks of nodes of eight can hold whole tables."""
    assert 12 == _sharded(ranks=12, per_node=8).replicas


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
def test_bags_that_cannot_be_dealt(changes: dict[str, object], problem: str) -> None:
    """Look-ups that no exchange does are refused by name."""
    program = build_workload(MODEL)
    graph = _ops(program.classes[0])
    bag = _nodes(graph, "embedding_bag")[2]
    graph.set_attributes(bag, **changes)  # type: ignore[arg-type]

    with pytest.raises(UnsupportedModelError, match=f"emb_l.2.bag.* {problem}"):
        PassManager([ShapeInference(), ShardEmbeddings(ranks=2)]).run(program)


def test_tables_are_batched_before_they_are_dealt() -> None:
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

    assert [n.results[0].type for n in _nodes(_graph(_sharded(), 0), "all_to_all")] == [
        n.results[0].type for n in _nodes(_graph(program, 0), "all_to_all")
    ]


def test_data_parallel_behind_it_reduces_the_rest() -> None:
    """As many replicas: no rank more, and gradients of MLPs alone are all-reduced."""
    passes = (
        *(ShapeInference(), ShardEmbeddings(ranks=RANKS), ShapeInference()),
        *(Training(), DataParallel(world=RANKS), ShapeInference()),
    )
    program = PassManager(passes).run(build_workload(MODEL)).program
    graph = _graph(program, 3)
    dense = sum(
        int(_type(v).nbytes)
        for v in graph.parameters
        if ".weight.shard" not in v.name and not v.name.startswith("emb_l")
    )

    assert list(range(RANKS)) == sorted(r for c in program.classes for r in c.ranks)
    assert dense == sum(
        int(_type(node.results[0]).nbytes) for node in graph if node.op == "all_reduce"
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
    program = _sharded(model, plan=json.dumps({"tables": placed}))

    assert [(0,), (1,), (2, 3)] == sorted(c.ranks for c in program.classes)
    for rank in range(RANKS):
        groups = {
            node.attributes.text("group")
            for node in _nodes(_graph(program, rank), "reduce_scatter")
        }
        assert {f"emb.node{rank // 2}"} == groups
