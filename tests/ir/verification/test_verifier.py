"""Every invariant of graphs, launch graphs and programs, broken once."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from tests.ir.strategies import launch_graphs

from perfc.ir import Graph, LaunchGraph, Node, TaskKind
from perfc.ir.launch import verify_launches
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.program import RankClass
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_graph, parse_type
from perfc.ir.verification import verify, verify_types

GRAPH = """graph @g(%x: f32[8]) {
  %a = relu(%x) : f32[8]
  %b = relu(%a) : f32[8]
  %c = if(%x) region() {
    %inner = relu(%a) : f32[8]
    return %inner
  } region() {
    return %b
  } : f32[8]
  return %b
}
"""


def _swap_order(graph: Graph) -> None:
    nodes = graph._nodes  # pyright: ignore[reportPrivateUsage]
    nodes[0], nodes[1] = nodes[1], nodes[0]


def _node(graph: Graph, name: str) -> Node:
    producer = graph.value(name).producer
    assert producer is not None
    return producer


def _operand_behind_the_back(graph: Graph) -> None:
    _node(graph, "b").operands = (graph.value("x"),)


def _other_producer(graph: Graph) -> None:
    graph.value("b").producer = _node(graph, "a")


def _foreign_region(graph: Graph) -> None:
    node = _node(graph, "c")
    node.regions = (node.regions[0], Graph("if"))


def _foreign_output(graph: Graph) -> None:
    graph.outputs.append(parse_graph(GRAPH).value("x"))


def _inner_output(graph: Graph) -> None:
    graph.outputs.append(_node(graph, "c").regions[0].value("inner"))


def _renamed(graph: Graph) -> None:
    graph.value("b").name = "z"


def _same_name(graph: Graph) -> None:
    graph.value("b").name = "a"


def _name_hidden_in_a_region(graph: Graph) -> None:
    _node(graph, "c").regions[0].value("inner").name = "b"


def _late_input(graph: Graph) -> None:
    graph.inputs.append(graph.value("x"))


def _stale_reader(graph: Graph) -> None:
    graph.nest.readers[graph.value("b")][_node(graph, "a")] = None


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_swap_order, "%b = relu: operand %a is used before it is defined"),
        (_operand_behind_the_back, "%b = relu: missing from the use list of %x"),
        (_other_producer, "%b = relu: result %b names another producer"),
        (_foreign_region, "%c = if: a region belongs to another graph"),
        (_foreign_output, "graph output %x is not defined in @g"),
        (_inner_output, "graph output %inner is not defined in @g"),
        (_renamed, "%z = relu: %z is not known by its name"),
        (_same_name, "%a = relu: %a is defined twice"),
        (_name_hidden_in_a_region, "%b = relu: %b is defined twice"),
        (_late_input, "@g: %x is defined twice"),
        (_stale_reader, "use lists of @g name nodes that are not in it"),
    ],
)
def test_damage(damage: Callable[[Graph], None], problem: str) -> None:
    """Each invariant has its check, and the message names the node."""
    graph = parse_graph(GRAPH)
    verify(graph, BUILTIN_OPS)
    damage(graph)
    with pytest.raises(VerifyError) as caught:
        verify(graph, BUILTIN_OPS)

    assert problem == str(caught.value)


def test_window() -> None:
    """The note shows the nodes around the broken one, and marks it."""
    graph = parse_graph(GRAPH)
    _other_producer(graph)
    with pytest.raises(VerifyError) as caught:
        verify(graph, BUILTIN_OPS)

    (note,) = caught.value.__notes__
    assert ["  %a = relu(%x) : f32[8]", "> %b = relu(%a) : f32[8]"] == (
        note.splitlines()[:2]
    )


def _line(text: str) -> str:
    return f"graph @g(%x: f32[8], %y: ?) {{ {text} return }}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("%z = nope(%x) : ?", "%z = nope: unknown op 'nope'; see `perfc ops`"),
        ("%z = rleu(%x) : ?", "%z = rleu: unknown op 'rleu'; did you mean relu"),
        ("%z = relu() : ?", "%z = relu: expected 1 operands, got 0"),
        ("%z = linear(%x) : ?", "%z = linear: expected 2 to 3 operands, got 1"),
        ("%z = embedding_bag(%x) : ?", "expected 2 to any operands, got 1"),
        ("relu(%x)", "relu: expected 1 results, got 0"),
        ("loop(%x)", "loop: expected 1 regions, got 0"),
        ("%z = relu(%x) {a = 1} : ?", "unknown attribute 'a'"),
        ("%z = softmax(%x) : ?", "attribute 'axis' is missing"),
        ("%z = softmax(%x) {axis = none} : ?", "attribute 'axis' is missing"),
        ("%z = softmax(%x) {axis = 1.0} : ?", "attribute 'axis' is 1.0, expected int"),
        (
            "%z = softmax(%x) {axis = true} : ?",
            "attribute 'axis' is True, expected int",
        ),
    ],
)
def test_nodes(text: str, problem: str) -> None:
    """A node must fit the definition of its op."""
    with pytest.raises(VerifyError) as caught:
        verify(parse_graph(_line(text)), BUILTIN_OPS)

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("%z = relu(%x) : f32[9]", "%z = relu: %z is f32[9], its rule says f32[8]"),
        ("%z = relu(%x) : f16[8]", "%z = relu: %z is f16[8], its rule says f32[8]"),
        ("%z = relu(%x) : f32[8,1]", "%z is f32[8,1], its rule says f32[8]"),
        ("%z = softmax(%x) {axis = 1} : ?", "%z = softmax: axis 1 is out of range"),
        ("%z = relu(%x) : ? %u = relu(%z) : f32[9]", "%u is f32[9], its rule says"),
    ],
)
def test_types(text: str, problem: str) -> None:
    """A declared type must agree with the rule of the op."""
    with pytest.raises(VerifyError) as caught:
        verify_types(parse_graph(_line(text)), BUILTIN_OPS)

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "%z = relu(%x) : f32[N]",
        "%z = relu(%y) : f32[3]",
        '%z = unknown(%x) {op = "f"} : f32[3]',
        "%z = copy(%x) : f32[8]@host",
        "%s = shape(%x) : i64[1] %z = reshape(%x, %s) : f32[8]",
        "%z = if(%x) region() { return %x } region() { return %x } : f32[8]",
    ],
)
def test_types_that_agree(text: str) -> None:
    """Symbols, unknown types and ops without a rule are given the benefit of doubt."""
    verify_types(parse_graph(_line(text)), BUILTIN_OPS)


def test_types_in_regions() -> None:
    """Regions are checked too."""
    text = "%z = if(%x) region() { %i = relu(%x) : f32[9] return } region() { return }"
    with pytest.raises(VerifyError, match="its rule says"):
        verify_types(parse_graph(_line(text + " : f32[8]")), BUILTIN_OPS)


@given(launch_graphs())
def test_launch_graphs(graph: LaunchGraph) -> None:
    """What the tests build is valid."""
    verify_launches(graph)


def _launches() -> LaunchGraph:
    graph = LaunchGraph("t")
    graph.thread()
    graph.stream()
    graph.task(TaskKind.CALL, 0)
    return graph


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({"kind": TaskKind.HOST, "resource": 2}, "no resource 2"),
        ({"resource": 0}, "a kernel task belongs on a stream, not on main"),
        ({"kind": TaskKind.SYNC}, "a sync task belongs on a thread, not on s0"),
        ({"op": 0}, "no op 0"),
        ({"kernel": -2}, "no kernel -2"),
        ({"issue": 1}, "issued by task 1, which does not come before it"),
        ({"issue": -2}, "issued by task -2, which does not come before it"),
        ({"after": (0, 1)}, "waits for task 1, which does not come before it"),
        ({"group": "a"}, "a collective, and only a collective, has a group"),
        ({"kind": TaskKind.COLLECTIVE}, "a collective, and only a collective, has"),
        ({"stated_s": -1.0}, "duration -1.0 s"),
        ({"stated_s": math.inf}, "duration inf s"),
    ],
    ids=str,
)
def test_tasks(task: dict[str, object], problem: str) -> None:
    """Each invariant of a task has its check."""
    graph = _launches()
    arguments = {"kind": TaskKind.KERNEL, "resource": 1, **task}
    graph.task(**arguments)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(VerifyError) as caught:
        verify_launches(graph)

    assert str(caught.value).startswith(f"task 1 of @t: {problem}")


def test_issued_by_a_kernel() -> None:
    """Only the host issues."""
    graph = _launches()
    graph.task(TaskKind.KERNEL, 1)
    graph.task(TaskKind.KERNEL, 1, issue=1)
    with pytest.raises(VerifyError, match="issued by task 1, which is not a host task"):
        verify_launches(graph)


def test_resources_have_their_own_names() -> None:
    """Two streams of one rank are told apart by name."""
    graph = _launches()
    graph.stream("s0", 1)
    with pytest.raises(VerifyError, match="@t has two streams called 's0'"):
        verify_launches(graph)


@pytest.mark.parametrize(
    ("ranks", "problem"),
    [
        ((), "needs at least one rank and one graph"),
        ((1, 0), r"ranks \[1, 0\] are not ascending"),
        ((0, 0), r"ranks \[0, 0\] are not ascending"),
        ((-1,), r"ranks \[-1\] are not ascending"),
    ],
)
def test_ranks(ranks: tuple[int, ...], problem: str) -> None:
    """A rank class has ranks, ascending, and a graph."""
    with pytest.raises(VerifyError, match=problem):
        RankClass(ranks, Graph("g"))
    with pytest.raises(VerifyError, match="needs at least one rank and one graph"):
        RankClass((0,))


def test_long_graphs() -> None:
    """The window of a long graph is short."""
    graph = Graph("g")
    value = graph.add_input("x", parse_type("f32[8]"))
    for index in range(100):
        (value,) = graph.add("relu", [value], [f"v{index}"]).results
    _node(graph, "v50").results[0].producer = None
    with pytest.raises(VerifyError) as caught:
        verify(graph, BUILTIN_OPS)

    (note,) = caught.value.__notes__
    assert 21 == len(note.splitlines())
    assert "> %v50 = relu(%v49) : ?" == note.splitlines()[10]
