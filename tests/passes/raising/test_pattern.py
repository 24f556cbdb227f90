"""How patterns of many nodes are found and replaced."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from perfc.ir import DTYPES, Graph, TensorType, Value, single
from perfc.passes import PassManager
from perfc.passes.pipeline_spec import parse_pipeline

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def gated(count: int, *, shared: bool) -> Graph:
    """Return products of an input and its sigmoid, or of its one, joined by a node."""
    graph = Graph("gates")
    x = graph.add_input("x", TensorType(DTYPES["f32"], (8, 4)))
    made: list[Value] = []
    gates: list[Value] = []
    for number in range(count):
        if not (shared and gates):
            gates += graph.add("sigmoid", (x,), [f"gate{number}"]).results
        made += graph.add("mul", (x, gates[-1]), [f"y{number}"]).results
    graph.outputs += graph.add("concat", made, ["y"], {"axis": 1}).results
    return graph


def raised(graph: Graph) -> tuple[Counter[str], int]:
    """Return the ops of a raised graph, and how many lines ran to raise it."""
    lines = 0

    def count(_: FrameType, event: str, __: object) -> TraceFunction:
        nonlocal lines
        lines += event == "line"
        return count

    passes = parse_pipeline("shape-inference,fold-shapes,raise-activation")
    before = sys.gettrace()
    sys.settrace(count)
    try:
        PassManager(passes).run(single(graph))
    finally:
        sys.settrace(before)
    return Counter(node.op for node in graph), lines


@pytest.mark.parametrize(
    ("shared", "op"), [(False, "silu"), (True, "mul")], ids=["raised", "read elsewhere"]
)
def test_patterns_beside_one_another_take_linear_time(*, shared: bool, op: str) -> None:
    """Twice as many patterns that read one value, all read by one node, take twice."""
    raised(gated(2, shared=shared))  # what is imported and opened once
    few, few_lines = raised(gated(200, shared=shared))
    many, many_lines = raised(gated(400, shared=shared))

    assert (200, 400) == (few[op], many[op])
    assert many_lines < 2.2 * few_lines
