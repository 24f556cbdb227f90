"""The nodes of an ONNX graph in dependency order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from perfc.frontends.onnx.protobuf import onnx
from perfc.ir.support import UnsupportedModelError


def in_dependency_order(
    protos: Iterable[onnx.NodeProto], given: AbstractSet[str]
) -> Sequence[onnx.NodeProto]:
    """Return the nodes so that each comes after what it reads.

    ONNX demands this of files; a file that breaks it is sorted, keeping the
    file's order wherever it can. *given* are the names that are not theirs to
    define: inputs and initializers.
    """
    nodes = list(protos)
    producer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            if name in given:
                msg = f"{_shown(node)} defines {name!r} again, which is given already"
                raise UnsupportedModelError(msg)
            if name and name in producer:
                msg = (
                    f"value {name!r} is defined twice: by "
                    f"{_shown(nodes[producer[name]])} and by {_shown(node)}"
                )
                raise UnsupportedModelError(msg)
            producer[name] = index
    if all(
        producer.get(name, -1) < index
        for index, node in enumerate(nodes)
        for name in _names_read(node)
    ):
        return nodes
    reads = [
        {producer[name] for name in _names_read(node) if name in producer}
        for node in nodes
    ]
    return [nodes[i] for i in _sorted(nodes, reads)]


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Names a node reads, those its regions capture included."""
    yield from node.input
    yield from names_captured(node)


def names_captured(node: onnx.NodeProto) -> Iterator[str]:
    """Names that the graphs of *node* read, their own values among them."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from _names_read(inner)
            yield from (output.name for output in attribute.g.output)


def _sorted(nodes: Sequence[onnx.NodeProto], reads: list[set[int]]) -> list[int]:
    readers: list[list[int]] = [[] for _ in nodes]
    waiting = [len(before) for before in reads]
    for index, before in enumerate(reads):
        for earlier in before:
            readers[earlier].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = next(i for i, count in enumerate(waiting) if count)
        msg = f"the graph has a cycle through {_shown(nodes[stuck])}"
        raise UnsupportedModelError(msg)
    return order


def _shown(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name!r}"
