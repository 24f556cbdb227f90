"""Device memory of an inference iteration: parameters and live activations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

from perfc.ir import BUILTIN_OPS, Graph, Node, Program, Value

Json: TypeAlias = dict[str, Any]


def memory_report(program: Program) -> Json:
    """Return bytes of parameters and activations, and the peak of their sum.

    A value lives from the node that makes it to the last node that reads it or
    a view of it; inputs and outputs live throughout. Bytes are exact tensor
    sizes, without the allocator's rounding.
    """
    graph = program.classes[0].ops
    if graph is None:
        zero = {"parameters_bytes": 0, "activations_bytes": 0, "optimizer_bytes": 0}
        return {"peak_bytes": 0, **zero, "at_node": ""}
    bindings = program.bindings
    parameters = sum(_nbytes(value, bindings) for value in graph.parameters)
    peak, at_node = _peak_activations(graph, bindings)
    return {
        "peak_bytes": parameters + peak,
        "parameters_bytes": parameters,
        "activations_bytes": peak,
        "optimizer_bytes": 0,
        "at_node": at_node,
    }


def _nbytes(value: Value, bindings: Mapping[str, int]) -> int:
    return 0 if value.type is None else int(value.type.bind(bindings).nbytes)


def _peak_activations(graph: Graph, bindings: Mapping[str, int]) -> tuple[int, str]:
    nodes = list(graph)
    owner = _storage_owners(nodes)
    last_read = _last_reads(graph, nodes, owner)
    live = sum(_nbytes(value, bindings) for value in graph.inputs)
    peak, at_node = live, ""
    freed: defaultdict[int, int] = defaultdict(int)
    for index, node in enumerate(nodes):
        for value in node.results:
            if owner[value] is value and node.op != "constant":
                size = _nbytes(value, bindings)
                live += size
                freed[last_read.get(value, index)] += size
        if live > peak:
            peak, at_node = live, node.results[0].name if node.results else node.op
        live -= freed.pop(index, 0)
    return peak, at_node


def _storage_owners(nodes: list[Node]) -> dict[Value, Value]:
    """The value whose storage each value uses: itself, unless it is a view."""
    owner: dict[Value, Value] = {}
    for node in nodes:
        view = BUILTIN_OPS[node.op].view if node.op in BUILTIN_OPS else None
        for value in node.results:
            source = node.operands[view] if view is not None else value
            owner[value] = owner.get(source, source)
    return owner


def _last_reads(
    graph: Graph, nodes: list[Node], owner: Mapping[Value, Value]
) -> dict[Value, int]:
    last: dict[Value, int] = {}
    for index, node in enumerate(nodes):
        for value in node.operands:
            last[owner.get(value, value)] = index
    for value in graph.outputs:
        last[owner.get(value, value)] = len(nodes)
    return last
