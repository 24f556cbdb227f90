"""Memory of an iteration."""

from __future__ import annotations

import pytest

from perfc.ir import LaunchGraph, parse_graph, single
from perfc.tools.memory import memory_report

K = 4 * 1024
"""Bytes of the tensors below."""


VIEW = "%v = unsqueeze(%a) {axes = [0]} : f32[1,1024]"


@pytest.mark.parametrize(
    ("nodes", "peak", "at_node"),
    [
        ([], 1, ""),
        (["%a = relu(%x)"], 2, "a"),
        # a goes once b is there: the input, a and b, then the input, b and c.
        (["%a = relu(%x)", "%b = relu(%a)", "%c = relu(%b)"], 3, "b"),
        # The input and all three, because c reads both.
        (["%a = relu(%x)", "%b = relu(%a)", "%c = add(%a, %b)"], 4, "c"),
        # A view takes nothing, and keeps a.
        (["%a = relu(%x)", VIEW, "%b = relu(%x)", "%c = add(%v, %b)"], 4, "c"),
        # Nobody reads a: it is gone at once.
        (["%a = relu(%x)", "%b = relu(%x)"], 2, "a"),
    ],
)
def test_activations(nodes: list[str], peak: int, at_node: str) -> None:
    """A value takes memory from the node that makes it to the last that reads it."""
    lines = [node if ":" in node else f"{node} : f32[1024]" for node in nodes]
    last = nodes[-1].partition(" ")[0] if nodes else "%x"
    body = "\n".join([*lines, f"return {last}"])

    report = memory_report(
        single(parse_graph(f"graph @g(%x: f32[1024]) {{\n{body}\n}}\n"))
    )

    assert (peak * K, at_node) == (report["activations_bytes"], report["at_node"])


def test_parameters() -> None:
    """Parameters are there throughout, and counted on their own."""
    graph = parse_graph("graph @g(%x: f32[1024]) {\n  return %x\n}\n")
    weight = graph.inputs[0].type
    assert weight is not None
    graph.add_parameter("w", weight)

    report = memory_report(single(graph))

    assert (K, K, 2 * K) == (
        report["parameters_bytes"],
        report["activations_bytes"],
        report["peak_bytes"],
    )


def test_bound_dimensions() -> None:
    """Symbols have the numbers they are bound to."""
    graph = parse_graph("graph @g(%x: f32[n]) {\n  return %x\n}\n")

    assert K == memory_report(single(graph).bind({"n": 1024}))["peak_bytes"]


def test_launch_graphs() -> None:
    """A launch graph says nothing of tensors."""
    assert 0 == memory_report(single(LaunchGraph("t")))["peak_bytes"]
