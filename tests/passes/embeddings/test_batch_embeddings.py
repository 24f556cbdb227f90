"""batch-embeddings: which bags are looked up together."""

from __future__ import annotations

import pytest

import perfc
from perfc.frontends.workloads import build_workload
from perfc.ir import Graph, Node, Program
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.text import parse_program
from perfc.ir.verification import verify
from perfc.passes import PassManager, ShapeInference
from perfc.passes.embeddings import BatchEmbeddings, can_batch

BAG = (
    '{tables = [{rows = 100, dim = 8, pooling = 2}], mode = "sum", has_offsets = true}'
)
GRAPH = """
graph @bags(%x: f32[4,8], %i: i64[8], %o: i64[4], %j: i64[12], %p: i64[4],
            param %w: f32[100,8], param %v: f32[100,8]) {{
  %a = embedding_bag(%w, %i, %o) {first} : ?
  %b = embedding_bag(%v, %j, %p) {second} : ?
  %y = concat({joined}) {{axis = {axis}}} : ?
  return {returned}
}}
"""


def _program(
    first: str = BAG,
    second: str = BAG,
    *,
    joined: str = "%x, %a, %b",
    axis: int = 1,
    returned: str = "%y",
) -> Program:
    text = GRAPH.format(
        first=first, second=second, joined=joined, axis=axis, returned=returned
    )
    return parse_program(text)


def _batched(program: Program) -> Graph:
    passes = (ShapeInference(), BatchEmbeddings(), ShapeInference())
    done = PassManager(passes).run(program).program
    (rank,) = done.classes
    assert rank.ops is not None
    verify(rank.ops, BUILTIN_OPS)
    return rank.ops


def _bags(graph: Graph) -> list[Node]:
    return [node for node in graph if node.op == "embedding_bag"]


def test_two_tables_become_one_lookup() -> None:
    """Indices and offsets are one list each; the result is read where both were."""
    graph = _batched(_program())
    (bag,) = _bags(graph)
    (concat,) = [node for node in graph if node.op == "concat"]

    assert ["x", "indices", "offsets"] == [value.name for value in graph.inputs]
    assert ["i64[20]", "i64[9]"] == [str(v.type) for v in bag.operands[2:]]
    assert "f32[4,16]" == str(bag.results[0].type)
    assert bag.results[0] is concat.operands[1]
    assert "f32[4,24]" == str(graph.outputs[0].type)


MEAN = BAG.replace("sum", "mean")


@pytest.mark.parametrize(
    ("second", "changes"),
    [
        (MEAN, {}),
        (BAG.replace("true}", 'true, popularity = "zipf"}'), {}),
        (BAG, {"joined": "%a, %x, %b"}),
        (BAG, {"axis": 0}),
        (BAG, {"returned": "%y, %b"}),
    ],
)
def test_bags_that_stay(second: str, changes: dict[str, str | int]) -> None:
    """Pooled otherwise, not joined one after the other, or read elsewhere."""
    joined, axis = str(changes.get("joined", "%x, %a, %b")), int(changes.get("axis", 1))
    returned = str(changes.get("returned", "%y"))
    program = _program(second=second, joined=joined, axis=axis, returned=returned)

    assert len(_bags(_batched(program))) == 2


def test_a_workload_is_the_one_that_was_written_so() -> None:
    """DLRM with batched tables launches the same, but for the width of its indices."""
    program = PassManager((ShapeInference(),)).run(build_workload("dlrm-ddp")).program
    (rank,) = program.classes
    assert rank.ops is not None
    assert can_batch(rank.ops)

    ours = perfc.load("dlrm-ddp", batch=64, transforms=[BatchEmbeddings()])
    written = perfc.load("dlrm-ddp:embedding=batched", batch=64)
    times = [perfc.analyze(m, "v100", inputs="device").time_us for m in (ours, written)]

    assert times[1] == pytest.approx(times[0], rel=0.01)


def test_nothing_to_batch_is_said() -> None:
    """A model without tables gets a remark, not an error."""
    report = perfc.analyze(
        perfc.load("resnet50", batch=1, transforms=[BatchEmbeddings()]), "v100"
    )

    assert "no-bags" in {d.code for d in report.diagnostics}
