"""Rewrites of ONNX files that keep their meaning: nothing may hang on form."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

_COMMUTATIVE = {"Add", "Mul", "Equal", "And", "Or", "Max", "Min"}


def graphs(proto: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """*proto* and every graph inside it."""
    yield proto
    for node in proto.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def stripped(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy *model* without what its exporter noted: metadata and node names."""
    copy = _copy(model)
    for graph in graphs(copy.graph):
        del graph.metadata_props[:]
        for node in graph.node:
            del node.metadata_props[:]
            node.name = ""
            node.doc_string = ""
    return copy


def shuffled(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """Copy *model* with the nodes of each graph in another topological order."""
    copy = _copy(model)
    for graph in graphs(copy.graph):
        nodes = _topological(list(graph.node), rng)
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def swapped(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy *model* with the operands of every commutative node swapped."""
    copy = _copy(model)
    for graph in graphs(copy.graph):
        for node in graph.node:
            if node.op_type in _COMMUTATIVE:
                operands = list(reversed(node.input))
                del node.input[:]
                node.input.extend(operands)
    return copy


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _topological(
    nodes: list[onnx.NodeProto], rng: np.random.Generator
) -> list[onnx.NodeProto]:
    made = {name for node in nodes for name in node.output}
    order: list[onnx.NodeProto] = []
    defined: set[str] = set()
    while nodes:
        ready = [n for n in nodes if (_reads(n) & made) <= defined]
        node = ready[int(rng.integers(len(ready)))]
        nodes.remove(node)
        order.append(node)
        defined.update(node.output)
    return order


def _reads(node: onnx.NodeProto) -> set[str]:
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names.update(output.name for output in attribute.g.output)
            for inner in attribute.g.node:
                names |= _reads(inner)
    return names
