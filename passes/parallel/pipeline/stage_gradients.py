"""Gradients and updates of the parameters of each stage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from perfc.ir import Graph, Node, Value, node_kinds
from perfc.ir.location import ACCUMULATE_GRAD
from perfc.ir.opdef import Trait
from perfc.ir.support import UnsupportedModelError
from perfc.passes import graphs
from perfc.passes.parallel.pipeline.pipeline_stages import Stages


@attrs.frozen(eq=False)
class Gradient:
    """A gradient that is added up over microbatches.

    Of a parameter that several stages read, each of them has a part.

    Attributes:
        value: What is read when backward is done.
        parts: What of it each stage makes.

    """

    value: Value
    parts: Mapping[int, Value]

    @property
    def stages(self) -> Sequence[int]:
        """Stages that have a part."""
        return sorted(self.parts)

    @property
    def taken(self) -> Node | None:
        """The node by which the parameter takes its gradient over, if there is one."""
        node = self.value.producer
        is_own = node is not None and node.location.origin == ACCUMULATE_GRAD
        return node if is_own else None


def gradients_of(stages: Stages) -> list[Gradient]:
    """Find what the optimizer reads of backward, or the step returns of it."""
    graph = stages.graph
    updates = [node for node in graph if node.location.phase == graphs.OPTIMIZER]
    read = [v for node in updates for v in node.operands] or graph.outputs
    wanted = set(read)
    return [
        Gradient(value, _parts(stages, value))
        for node in graph
        if node.location.phase == graphs.BACKWARD
        for value in node.results
        if value in wanted and node in stages.of
    ]


def _parts(stages: Stages, value: Value) -> dict[int, Value]:
    """Return the part that each stage adds to a gradient."""
    node = value.producer
    if node is None or node not in stages.of:
        msg = f"gradient {value} is made by no stage"
        raise UnsupportedModelError(msg)
    if node.location.origin == ACCUMULATE_GRAD:
        made, *others = reversed(node.operands)
        if others:
            msg = (
                f"{value} is added to a gradient that stays (kept-gradients or "
                "main-grads of training), which pipeline-parallel does not take"
            )
            raise UnsupportedModelError(msg)
        return _parts(stages, made)
    if node.op != "add" or len(stages.graph.uses(value)) > 1:
        return {stages.of[node]: value}
    if any(stages.stage(operand) is None for operand in node.operands):
        return {stages.of[node]: value}
    left, right = (_parts(stages, operand) for operand in node.operands)
    if len(left.keys() | right.keys()) == 1:
        return {stages.of[node]: value}
    if left.keys() & right.keys():
        msg = (
            f"{value}: stages of a pipeline share its parameter, and one of them reads "
            "it several times"
        )
        raise UnsupportedModelError(msg)
    return {**left, **right}


def sums_across(gradients: Sequence[Gradient]) -> frozenset[Node]:
    """Return the nodes that add up parts of several stages, and what takes these."""
    found: set[Node] = set()
    for gradient in (g for g in gradients if len(g.parts) > 1):
        pending = [gradient.value]
        while pending:
            value = pending.pop()
            if value in gradient.parts.values() or value.producer is None:
                continue
            found.add(value.producer)
            pending += value.producer.operands
    return frozenset(found)


def holders_of(
    stages: Stages, gradients: Sequence[Gradient]
) -> dict[Value, frozenset[int]]:
    """Return which stages hold each parameter: those that read it."""
    graph = stages.graph
    held: dict[Value, frozenset[int]] = {}
    for parameter in graph.parameters:
        users = graph.readers(parameter)
        held[parameter] = frozenset(stages.of[n] for n in users if n in stages.of)
    for gradient in gradients:
        for parameter in _updated_by(graph, gradient.value):
            missing = held[parameter] - gradient.parts.keys()
            if missing:
                msg = (
                    f"{parameter} is read by stage {min(missing)} of a pipeline, which "
                    "makes no part of its gradient"
                )
                raise UnsupportedModelError(msg)
    return held


def _updated_by(graph: Graph, gradient: Value) -> list[Value]:
    name = gradient.name.rpartition(".grad")[0]
    return [parameter for parameter in graph.parameters if parameter.name == name]


def check_places(held: Mapping[Value, frozenset[int]], places: int) -> None:
    """Refuse parameters that several stages of one place read."""
    for parameter, stages in held.items():
        if len({stage % places for stage in stages}) < len(stages):
            listed = ", ".join(map(str, sorted(stages)))
            msg = (
                f"{parameter} is read by chunks {listed}, two of which are on one "
                "stage of the pipeline; choose another number of stages or chunks"
            )
            raise UnsupportedModelError(msg)


def check_updates(graph: Graph) -> None:
    """Refuse gradients that cannot be added up over microbatches."""
    for node in graph:
        if node_kinds.updates_rows(node) or (
            node.location.phase == graphs.BACKWARD and "optimizer" in node.attributes
        ):
            msg = (
                f"{node.name}: sparse gradients of tables are not added up over "
                "microbatches; give --pass 'training{sparse-gradients=never}' or "
                "microbatches=1"
            )
            raise UnsupportedModelError(msg)


@attrs.frozen(eq=False)
class Update:
    """A node of the optimizer, as a stage has it.

    Attributes:
        node: The node.
        operands: Those that belong to the parameters of the stage.
        results: The same of its results.

    """

    node: Node
    operands: Sequence[Value]
    results: Sequence[Value]


def updates_of(
    stages: Stages, mine: Collection[int], held: Mapping[Value, frozenset[int]]
) -> Iterator[Update]:
    """Yield the optimizer's updates in some stages: of the parameters they hold."""
    graph = stages.graph
    owners: dict[Value, Value] = {parameter: parameter for parameter in held}
    owners.update(_owners_of_states(graph))
    owners.update(_owners_of_gradients(graph))
    for node in graph:
        if node.location.phase != graphs.OPTIMIZER or node_kinds.is_constant(node):
            continue
        columns = _columns(node)
        kept: list[int] = []
        for number, column in enumerate(columns):
            owner = next((owners[v] for v in column if v in owners), None)
            if owner is None or not held[owner].isdisjoint(mine):
                kept.append(number)
            if owner is not None:
                owners.update(dict.fromkeys(column, owner))
        width = len(columns)
        if kept or not node.operands:
            operands = _chosen(node.operands, kept, width)
            yield Update(node, operands, _chosen(node.results, kept, width))


def _columns(node: Node) -> list[tuple[Value, ...]]:
    """Return the values of each parameter: lists of all lie one behind the other."""
    if "lists" in node.attributes:
        lists = node.attributes.integer("lists")
    elif node_kinds.has_trait(node, Trait.HOST):
        lists = 1
    else:
        return [(*node.operands, *node.results)]
    width = len(node.operands) // lists
    values = (*node.operands, *node.results)
    return [values[number::width] for number in range(width)]


def _chosen(
    values: Sequence[Value], columns: Sequence[int], width: int
) -> Sequence[Value]:
    if width == 1:
        return values if columns or not values else ()
    kept = frozenset(columns)
    return [value for place, value in enumerate(values) if place % width in kept]


def _owners_of_gradients(graph: Graph) -> Iterator[tuple[Value, Value]]:
    """Yield each gradient of backward and the parameter that it is named for."""
    parameters = {parameter.name: parameter for parameter in graph.parameters}
    for node in graph:
        if node.location.origin == ACCUMULATE_GRAD:
            for value in node.results:
                owner = parameters.get(value.name.rpartition(".grad")[0])
                if owner is not None:
                    yield value, owner


def _owners_of_states(graph: Graph) -> Iterator[tuple[Value, Value]]:
    parameters = {parameter.name: parameter for parameter in graph.parameters}
    for state in graph.states:
        owner = parameters.get(state.name.rpartition(".")[0])
        if owner is not None:
            yield state, owner
