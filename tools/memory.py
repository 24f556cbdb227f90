"""Device memory of an inference iteration: parameters and live activations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from perfc.ir import BUILTIN_OPS, Graph, Node, Program, TensorType, Value

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
    peak, at_node = -1, ""
    for name, live in _live_activations(graph, bindings):
        if live > peak:
            peak, at_node = live, name
    return peak, at_node


def activation_steps(program: Program) -> Iterator[tuple[str, int]]:
    """Return the bytes of live activations: at the start, then during each node.

    The first step has no name; the others have the node's, as the report has it.
    """
    graph = program.classes[0].ops
    if graph is not None:
        yield from _live_activations(graph, program.bindings)


def _live_activations(
    graph: Graph, bindings: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    nodes = list(graph)
    owner = _storage_owners(nodes)
    last_read = _last_reads(graph, nodes, owner)
    sizes: dict[TensorType | None, int] = {None: 0}

    def nbytes(value: Value) -> int:
        found = sizes.get(value.type)
        if found is None:
            found = sizes[value.type] = _nbytes(value, bindings)
        return found

    live = sum(map(nbytes, graph.inputs))
    yield "", live
    freed: defaultdict[int, int] = defaultdict(int)
    for index, node in enumerate(nodes):
        for value in node.results:
            if owner[value] is value and node.op != "constant":
                size = nbytes(value)
                live += size
                freed[last_read.get(value, index)] += size
        yield node.results[0].name if node.results else node.op, live
        live -= freed.pop(index, 0)


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
