"""Pooled rows and their gradients on their way: precisions, and who falls back."""

from __future__ import annotations

import pytest
from tests.passes.embeddings.shards import (
    BATCH,
    MODEL,
    RANKS,
    exchanged_bytes,
    graph_of,
    node_named,
    nodes_of,
    sharded,
    type_of,
)

from perfc.frontends.workloads import build_workload
from perfc.passes import PassManager, ShapeInference, ShardEmbeddings
from perfc.passes.training import Training


def test_quantized_communication() -> None:
    """Rows are sent in half the bytes, forward and backward; codecs stand around."""
    graph = graph_of(sharded(qcomm="bf16", optimizer="sgd"), 0)
    rows = node_named(graph, "table_wise.output.all_to_all")
    (back,) = nodes_of(graph, "all_to_all", "backward")

    assert BATCH * 6 * 16 * 2 == type_of(rows.results[0]).nbytes
    assert "bf16" == type_of(back.results[0]).dtype.name
    assert 1 == len(nodes_of(graph, "encode_rows", "backward"))
    assert 1 == len(nodes_of(graph, "decode_rows", "backward"))


WIRE = {
    "fp32": (4.0, "f32"),
    "fp16": (2.0, "f16"),
    "bf16": (2.0, "bf16"),
    "fp8": (1.0, "f8e4m3"),
    "int8": (1.25, "u8"),
}
"""Bytes of a number on its way, and what holds them: 40 bytes for 32 in int8."""


@pytest.mark.parametrize("back", WIRE)
@pytest.mark.parametrize("forth", ["fp16", "bf16", "fp8", "int8"])
@pytest.mark.parametrize("tables", [4, 6])
def test_each_direction_has_its_precision(forth: str, back: str, tables: int) -> None:
    """Both ends agree; ranks that have more tables than others send more."""
    model = f"dlrm-ddp:tables={tables},rows=1000,dim=16,pooling=4"
    program = sharded(model, qcomm=forth, qcomm_backward=back, optimizer="sgd")
    graph = graph_of(program, 0)
    rows = node_named(graph, "table_wise.output.all_to_all")
    (again,) = nodes_of(graph, "all_to_all", "backward")
    (update,) = nodes_of(graph, "embedding_bag_backward", "backward")
    most = BATCH * 16 * RANKS * -(-tables // RANKS)
    received = BATCH * 16 * tables

    assert (WIRE[forth][1], WIRE[back][1]) == (
        type_of(rows.results[0]).dtype.name,
        type_of(again.results[0]).dtype.name,
    )
    assert received * WIRE[forth][0] == type_of(rows.results[0]).nbytes
    assert received * WIRE[back][0] == type_of(again.operands[0]).nbytes
    assert most * WIRE[back][0] == type_of(again.results[0]).nbytes
    assert most * WIRE[forth][0] == exchanged_bytes(rows)
    assert most * WIRE[back][0] == exchanged_bytes(again)
    assert "f32" in {type_of(value).dtype.name for value in update.operands}


@pytest.mark.parametrize("asked", ["fp8", "int8"])
def test_sums_fall_back_to_16_bits(asked: str) -> None:
    """TorchRec's registry of codecs: fp16 forward, bf16 backward, and it is said."""
    sharding = ShardEmbeddings(RANKS, "grid", per_node=2, qcomm=asked)
    passes = (ShapeInference(), sharding, ShapeInference())
    result = PassManager((*passes, Training())).run(build_workload(MODEL))
    graph = graph_of(result.program, 0)
    (scatter,) = nodes_of(graph, "reduce_scatter")
    (gather,) = nodes_of(graph, "all_gather", "backward")
    (exchange,) = [n for n in nodes_of(graph, "all_to_all") if "output" in n.name]
    (back,) = nodes_of(graph, "all_to_all", "backward")
    sent = [type_of(n.results[0]).dtype.name for n in (scatter, gather, exchange, back)]
    said = [d.message for d in result.diagnostics if d.code == "qcomm-of-sums"]

    assert ["f16", "bf16", *[WIRE[asked][1]] * 2] == sent
    assert 1 == len(said)
    assert "as fp16, and their gradients as bf16" in said[0]


def test_whole_tables_do_not_fall_back() -> None:
    """Nothing is said where nothing is added up, or all can be."""
    for plan, sent in (("table-wise", "int8"), ("row-wise", "bf16")):
        passes = (ShapeInference(), ShardEmbeddings(RANKS, plan, qcomm=sent))
        result = PassManager(passes).run(build_workload(MODEL))

        assert ["sharded-tables"] == [d.code for d in result.diagnostics]
