"""Graphs that communicate, and other kernels beside those that compute."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from perfc.ir import Graph, Node
from perfc.ir.choices import COMM_STREAM
from perfc.ir.node_kinds import is_cast, is_collective

_FOUND: WeakKeyDictionary[Graph, tuple[int, bool]] = WeakKeyDictionary()
"""Whether a graph communicates, and of which version of it that was found out."""


def communicates(graph: Graph) -> bool:
    """Whether an op graph has collectives."""
    version, found = _FOUND.get(graph, (-1, False))
    if version != graph.version:
        found = any(map(is_collective, graph))
        _FOUND[graph] = graph.version, found
    return found


def has_own_stream(node: Node) -> bool:
    """Whether the kernels of a node, no collective, name their stream."""
    return is_cast(node) and bool(node.attributes.text("stream", ""))


def is_issued_in_order(node: Node) -> bool:
    """Whether others wait for a node by events: nothing moves across it."""
    return is_collective(node) or has_own_stream(node)


def cast_stream(stream: str) -> str:
    """Return where what a communicator's stream sends is cast."""
    return f"{stream or COMM_STREAM}.cast"


def gradient_stream(stream: str) -> str:
    """Return where the gradient of a cast that has a stream is cast back."""
    return f"{stream}.grad"


STAGES = "pp"
"""What names of communicators between the stages of a pipeline begin with."""


def is_between_stages(node: Node) -> bool:
    """Whether a node is a collective of stages of one replica."""
    group = node.attributes.text("group", "")
    return is_collective(node) and group.startswith(f"{STAGES}.")
