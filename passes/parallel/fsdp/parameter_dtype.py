"""What `fsdp` computes in where it gathers parameters in a narrower type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from perfc.ir import DTYPES, DType, Graph, Node, Record, UsageError, Value
from perfc.ir.location import Location
from perfc.ir.node_kinds import (
    is_cast,
)
from perfc.ir.types import MemorySpace
from perfc.passes import graphs
from perfc.passes.precision import LOW_DTYPES, PLAIN_FLOATS, convert

PARAM_DTYPES = {"": None, **{name: DTYPES[LOW_DTYPES[name]] for name in LOW_DTYPES}}
"""What parameters can be gathered in: their own type if nothing is said."""

REDUCE_DTYPES = {**PARAM_DTYPES, "fp32": DTYPES["f32"]}
"""What gradients can be reduced in: their own type if nothing is said."""


def compute_in(
    graph: Graph, low: DType, shared: Iterable[Value], apart: Iterable[Value]
) -> None:
    """Let a graph compute in *low*, as FSDP's mixed precision does.

    Parameters, and what follows from them, have the type; inputs are cast to it before
    all else (`cast_forward_inputs`).

    Args:
        graph: The forward pass.
        low: The type.
        shared: The parameters that FSDP shares.
        apart: Parameters that it does not have: what follows from them alone stays as
            it is, and is cast where it meets the rest.

    """
    _refuse_autocast(graph, shared)
    kept = set(apart)
    for node in graph:
        floats = [v for v in node.operands if graphs.typed(v).dtype.is_float]
        if floats and kept.issuperset(floats):
            kept.update(node.results)
    inputs = [v for v in graph.inputs if _is_cast(v, low)]
    convert(graph, low, kept | set(inputs))
    _cast_inputs(graph, inputs, low)
    for node, index in list(_meetings(graph, kept)):
        value = node.operands[index]
        if _is_cast(value, low):
            type_ = attrs.evolve(graphs.typed(value), dtype=low)
            name = (f"{value.name}.{low.name}", type_)
            cast = graph.insert(node, "cast", (value,), name, {"dtype": low})
            graph.set_operand(node, index, cast)


def _is_cast(value: Value, low: DType) -> bool:
    type_ = graphs.typed(value)
    on_device = type_.space == MemorySpace.DEVICE
    return on_device and type_.dtype in PLAIN_FLOATS and type_.dtype != low


def _refuse_autocast(graph: Graph, shared: Iterable[Value]) -> None:
    narrow = [dtype for dtype in PARAM_DTYPES.values() if dtype is not None]
    for use in (use for value in shared for use in graph.uses(value)):
        if is_cast(use.node) and use.node.attributes.dtype("dtype") in narrow:
            msg = (
                f"{use.node}: casts a parameter already; fsdp with param-dtype comes "
                "before convert-dtype{autocast=true}"
            )
            raise UsageError(msg)


def _cast_inputs(graph: Graph, inputs: Iterable[Value], low: DType) -> None:
    """Cast inputs before the first node."""
    waiting = list(inputs)

    def step(_: Node) -> None:
        while waiting:
            value = waiting.pop(0)
            readers = graph.uses(value)
            name = graph.fresh_name(f"{value.name}.{low.name}")
            attributes = Record({"dtype": low})
            made = graph.add("cast", (value,), [name], attributes, location=Location())
            made.results[0].type = attrs.evolve(graphs.typed(value), dtype=low)
            for use in readers:
                graph.set_operand(use.node, use.index, made.results[0])

    graph.rewrite(step)


def _meetings(graph: Graph, kept: set[Value]) -> Iterator[tuple[Node, int]]:
    """Yield operands that are kept as they are, of nodes that are not."""
    for node in graph:
        if kept.isdisjoint(node.results):
            for index, value in enumerate(node.operands):
                if value in kept:
                    yield node, index
