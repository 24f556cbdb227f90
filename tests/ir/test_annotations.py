"""Facts live beside the graph, under typed keys, per scenario."""

from __future__ import annotations

import pytest

from perfc.ir import AnnotationKey, Graph, Node, Program, single
from perfc.ir.annotations import Annotations, Scenario

PRICE: AnnotationKey[float] = AnnotationKey("test.price", Node)
SHAPED: AnnotationKey[bool] = AnnotationKey("test.shaped", Graph, per_scenario=False)
TIME: AnnotationKey[float] = AnnotationKey("test.time", Program)
A100 = Scenario("a100", "1f", "eager")
H100 = Scenario("h100", "2e", "eager")


def _node() -> tuple[Graph, Node]:
    graph = Graph("g")
    return graph, graph.add("relu", [graph.add_input("x", None)], ["y"])


def test_facts_of_several_targets() -> None:
    """One graph carries the facts of two targets side by side."""
    _, node = _node()
    facts = Annotations()
    facts.set(PRICE, node, 1.5, A100)
    facts.set(PRICE, node, 0.5, H100)

    assert 1.5 == facts.get(PRICE, node, A100)
    assert {node: 0.5} == dict(facts.table(PRICE, H100))


def test_facts_true_everywhere() -> None:
    """A fact that no machine changes is seen from every scenario."""
    graph, _ = _node()
    facts = Annotations()
    facts.set(SHAPED, graph, True, A100)

    assert facts.get(SHAPED, graph, H100)
    assert facts.get(SHAPED, graph, None)


def test_absence() -> None:
    """A fact that is not there is an error, never a default."""
    _, node = _node()
    facts = Annotations()
    with pytest.raises(KeyError):
        facts.get(PRICE, node, A100)
    facts.set(PRICE, node, 1.0, A100)
    with pytest.raises(KeyError):
        facts.get(PRICE, node, H100)

    assert {} == dict(facts.table(PRICE, H100))


def test_anchors() -> None:
    """A fact about nodes cannot hang on a graph."""
    graph, _ = _node()
    with pytest.raises(TypeError, match=r"test\.price annotates Node, not Graph"):
        Annotations().set(PRICE, graph, 1.0, A100)


def test_tables_are_read_only() -> None:
    """Facts are changed through `set` only."""
    _, node = _node()
    facts = Annotations()
    facts.set(PRICE, node, 1.0, A100)
    with pytest.raises(TypeError):
        facts.table(PRICE, A100)[node] = 2.0  # type: ignore[index] # pyright: ignore[reportIndexIssue]


def test_keys() -> None:
    """The keys of a scenario are its own and those true everywhere."""
    graph, node = _node()
    program = single(graph)
    facts = Annotations()
    facts.set(SHAPED, graph, True, None)
    facts.set(PRICE, node, 1.0, A100)
    facts.set(TIME, program, 2.0, H100)

    assert [SHAPED, PRICE] == list(facts.keys(A100))
    assert [SHAPED, TIME] == list(facts.keys(H100))
    assert [SHAPED] == list(facts.keys(None))
    assert "test.price" == str(PRICE)


def test_retain() -> None:
    """What is not retained is gone, in every scenario asked about."""
    graph, node = _node()
    facts = Annotations()
    facts.set(SHAPED, graph, True, None)
    facts.set(PRICE, node, 1.0, A100)
    facts.set(PRICE, node, 2.0, H100)
    facts.retain(lambda key, scenario: key is SHAPED or scenario == H100)

    assert [SHAPED] == list(facts.keys(A100))
    assert [SHAPED, PRICE] == list(facts.keys(H100))


def test_fork() -> None:
    """Facts set on a copy do not show on the original."""
    graph, node = _node()
    facts = Annotations()
    facts.set(SHAPED, graph, True, None)
    copy = facts.fork()
    copy.set(PRICE, node, 1.0, A100)

    assert [SHAPED] == list(facts.keys(A100))
    assert [SHAPED, PRICE] == list(copy.keys(A100))
