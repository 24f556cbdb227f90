"""The op graph keeps its tables true through every change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ir.strategies import graphs

from perfc.ir import Graph, Node
from perfc.ir.core import Replacement, Use
from perfc.ir.location import NOWHERE
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.record import EMPTY
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_graph, parse_type, print_graph
from perfc.ir.verification import verify

CHAIN = """graph @g(%x: f32[8], param %w: f32[8]) {
  %a = relu(%x) : f32[8]
  %b = add(%a, %a) : f32[8]
  %c = add(%b, %w) : f32[8]
  return %c
}
"""
LOOPED = """graph @g(%n: i64[], %c: bool[], %x: f32[8]) {
  %a = relu(%x) : f32[8]
  %y = loop(%n, %c, %x) region(%i: i64[], %cond: bool[], %v: f32[8]) {
    %s = relu(%v) : f32[8]
    %t = add(%s, %a) : f32[8]
    return %cond, %a
  } : f32[8]
  return %y
}
"""


def _node(graph: Graph, name: str) -> Node:
    producer = graph.value(name).producer
    assert producer is not None
    return producer


def _identity(graph: Graph, old: str, operand: str) -> Replacement:
    value, source = graph.value(old), graph.value(operand)
    return Replacement("identity", (source,), EMPTY, value, NOWHERE)


def test_uses() -> None:
    """A value knows every operand slot that reads it."""
    graph = parse_graph(CHAIN)
    a, b = graph.value("a"), _node(graph, "b")

    assert (Use(b, 0), Use(b, 1)) == graph.uses(a)
    assert b in graph.readers(a)
    assert b not in graph.readers(graph.value("x"))
    assert () == graph.uses(graph.value("c"))
    assert 4 == sum(map(len, graph.nest.readers.values()))


def test_uses_in_regions() -> None:
    """Uses inside regions count."""
    graph = parse_graph(LOOPED)
    (region,) = _node(graph, "y").regions

    assert (Use(_node(region, "t"), 1),) == graph.uses(graph.value("a"))
    assert graph.value("a") is region.find("a")
    assert graph.find("t") is None


def test_set_operand() -> None:
    """Changing one operand changes one use."""
    graph = parse_graph(CHAIN)
    b = _node(graph, "b")
    graph.set_operand(b, 0, graph.value("w"))

    assert (Use(b, 1),) == graph.uses(graph.value("a"))
    assert "%b = add(%w, %a)" in print_graph(graph)
    verify(graph, BUILTIN_OPS)


def test_replace() -> None:
    """A new node takes the place, the readers and the type of an old one."""
    graph = parse_graph(CHAIN)
    graph.replace({_node(graph, "b"): _identity(graph, "b", "x")})

    verify(graph, BUILTIN_OPS)
    assert """graph @g(%x: f32[8], param %w: f32[8]) {
  %a = relu(%x) : f32[8]
  %b = identity(%x) : f32[8]
  %c = add(%b, %w) : f32[8]
  return %c
}
""" == print_graph(graph)


def test_replace_two_in_a_row() -> None:
    """A new node that reads what another one replaces reads the new value."""
    graph = parse_graph(CHAIN)
    graph.replace(
        {
            _node(graph, "a"): _identity(graph, "a", "x"),
            _node(graph, "b"): _identity(graph, "b", "a"),
        }
    )

    verify(graph, BUILTIN_OPS)
    assert "%b = identity(%a)" in print_graph(graph)


def test_replace_what_regions_return() -> None:
    """A region that returns an outer value returns the new one."""
    graph = parse_graph(LOOPED)
    graph.replace({_node(graph, "a"): _identity(graph, "a", "x")})

    verify(graph, BUILTIN_OPS)
    assert "return %cond, %a" in print_graph(graph)


def test_replace_one_result_of_two() -> None:
    """An old node stays while the graph returns another of its results."""
    graph = parse_graph(
        "graph @g(%x: f32[8]) {"
        "%a, %b = test.op(%x) : f32[8], f32[8] %c = relu(%a) : f32[8] return %b, %c }"
    )
    graph.replace({_node(graph, "a"): _identity(graph, "a", "x")})

    verify(graph, BUILTIN_OPS)
    assert ["identity", "test.op", "relu"] == [node.op for node in graph]


def test_replace_a_loop() -> None:
    """Replacing a node with regions takes everything inside out of the tables."""
    graph = parse_graph(LOOPED)
    graph.replace({_node(graph, "y"): _identity(graph, "y", "a")})

    verify(graph, BUILTIN_OPS)
    assert (Use(_node(graph, "y"), 0),) == graph.uses(graph.value("a"))


def test_replace_what_many_read() -> None:
    """Who reads several replaced values, twice or in a region, reads all new ones."""
    text = LOOPED.replace("  %y =", "  %b = relu(%x) : f32[8]\n  %y =")
    graph = parse_graph(
        text.replace("loop(%n, %c, %x)", "loop(%n, %c, %b)")
        .replace("add(%s, %a)", "add(%b, %a)")
        .replace("  return %y", "  %z = add(%a, %a) : f32[8]\n  return %y, %z")
    )
    graph.replace({_node(graph, name): _identity(graph, name, "x") for name in "ab"})

    verify(graph, BUILTIN_OPS)
    a, b = graph.value("a"), graph.value("b")
    y = _node(graph, "y")
    assert ["identity", "identity", "loop", "add"] == [node.op for node in graph]
    assert (graph.value("n"), graph.value("c"), b) == y.operands
    assert (b, a) == _node(y.regions[0], "t").operands
    assert (a, a) == _node(graph, "z").operands


def test_readers() -> None:
    """A node that reads a value twice, or in a region, is one reader."""
    graph = parse_graph(LOOPED)
    (region,) = _node(graph, "y").regions

    assert [_node(region, "t")] == list(graph.readers(graph.value("a")))
    assert [] == list(graph.readers(_node(graph, "y").results[0]))


def test_erase_dead() -> None:
    """Nodes nobody reads go, from the end, unless they are kept."""
    graph = parse_graph(CHAIN)
    graph.outputs[:] = [graph.value("a")]

    assert 0 == graph.erase_dead(lambda node: True)
    assert 2 == graph.erase_dead(lambda node: False)
    assert ["relu"] == [node.op for node in graph]
    verify(graph, BUILTIN_OPS)


def test_erase_dead_loops() -> None:
    """A dead loop takes along what only its region read or returned."""
    graph = parse_graph(LOOPED)

    assert 0 == graph.erase_dead(lambda node: False)
    graph.outputs.clear()
    assert 2 == graph.erase_dead(lambda node: False)
    assert 0 == sum(map(len, graph.nest.readers.values()))


@settings(max_examples=50)
@given(graphs(), st.data())
def test_random_erasure(graph: Graph, data: st.DataObject) -> None:
    """However a graph looks, its use lists stay true when nodes go."""
    kept = {node for node in graph if data.draw(st.booleans())}
    graph.outputs.clear()
    before = len(graph)

    removed = graph.erase_dead(kept.__contains__)

    assert before - removed == len(graph)
    assert _readers(graph) == sum(map(len, graph.nest.readers.values()))


def _readers(graph: Graph) -> int:
    return sum(
        len(set(node.operands)) + sum(map(_readers, node.regions)) for node in graph
    )


def test_fresh_names() -> None:
    """A fresh name is new here and in every enclosing graph."""
    graph = Graph("g")
    found: list[str] = []
    for _ in range(3):
        found.append(graph.fresh_name("t"))
        graph.add("f", [], [found[-1]])
    inner = Graph("r", graph)

    assert ["t", "t_1", "t_2"] == found
    assert "t_3" == inner.fresh_name("t")
    assert "u" == graph.fresh_name("u")


def test_values() -> None:
    """A graph lists what it defines, and finds it by name."""
    graph = parse_graph(CHAIN)

    assert ["x", "w", "a", "b", "c"] == [v.name for v in graph.values()]
    assert (3, "@g") == (len(graph), str(graph))
    with pytest.raises(VerifyError, match="no value %nope in graph @g"):
        graph.value("nope")


def test_name_taken() -> None:
    """A name stands for one value."""
    graph = parse_graph(CHAIN)
    with pytest.raises(VerifyError, match="value %a is defined twice in graph @g"):
        graph.add_input("a", parse_type("f32[8]"))


def test_foreign_operand() -> None:
    """A node cannot read a value of another graph."""
    graph, other = parse_graph(CHAIN), parse_graph(CHAIN)
    with pytest.raises(VerifyError, match="operand %x of relu does not belong to"):
        graph.add("relu", [other.value("x")], ["y"])


def test_nesting_is_bounded() -> None:
    """Regions nest 40 deep, not deeper."""
    graph = Graph("g")
    for _ in range(40):
        graph = Graph("g", graph)
    with pytest.raises(VerifyError, match="regions nested more than 40 deep in @g"):
        Graph("g", graph)


def test_strings() -> None:
    """Nodes and values show as they print."""
    graph = parse_graph(CHAIN)

    assert ("%a = relu", "%a") == (str(_node(graph, "a")), str(graph.value("a")))
    assert "f" == str(graph.add("f", [], []))


def test_make_constant() -> None:
    """A node whose elements are known becomes a constant that reads nothing."""
    graph = parse_graph("graph @g(%x: f32[8]) { %s = shape(%x) : i64[1] return %s }")
    graph.make_constant(_node(graph, "s"), (8,))

    verify(graph, BUILTIN_OPS)
    assert "%s = constant() {dtype = !i64, shape = [1], elements = [8]} : i64[1]" in (
        print_graph(graph)
    )
    assert () == graph.uses(graph.value("x"))


def test_make_constant_without_a_type() -> None:
    """Without a type there is no constant."""
    graph = parse_graph("graph @g(%x: f32[8]) { %s = shape(%x) : ? return %s }")
    with pytest.raises(VerifyError, match="%s = shape: its result has no type"):
        graph.make_constant(_node(graph, "s"), (8,))


def test_erase_unused_parameters() -> None:
    """Parameters go when nobody reads or returns them."""
    graph = parse_graph(
        "graph @g(param %a: f32[8], param %b: f32[8], param %c: f32[8]) {"
        "%d = relu(%a) : f32[8] return %b, %d }"
    )
    graph.erase_unused_parameters()

    verify(graph, BUILTIN_OPS)
    assert ["a", "b"] == [value.name for value in graph.parameters]
    assert graph.find("c") is None
