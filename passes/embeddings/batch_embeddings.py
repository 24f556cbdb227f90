"""The pass `batch-embeddings`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import ClassVar, TypeAlias

import attrs

from perfc import ir
from perfc.ir import node_kinds
from perfc.ir.core import Replacement
from perfc.ir.dims import Dim
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import TYPED

_OPERANDS = 3
"""A table, indices, offsets."""


@attrs.frozen
class BatchEmbeddings(Transform):
    """Look tables up together: one kernel for all, as FBGEMM's table-batched lookups.

    Sums of rows of tables of one type and width, with as many bags each, that a
    `concat` joins one after the other become one `embedding_bag`; its indices are one
    list, and so are its offsets, which end with the number of indices. Bags that are
    weighted, pooled otherwise, or whose indices are computed, stay as they are. It runs
    before `training`.
    """

    name: ClassVar[str] = "batch-embeddings"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({TYPED})

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Batch the bags of every op graph; say so where there are none."""
        found = 0
        for rank in program.classes:
            while rank.ops is not None and (group := next(_groups(rank.ops), None)):
                _batch(rank.ops, group)
                found += 1
        if not found:
            ctx.note("no-bags", "no two embedding bags can be looked up together")


def can_batch(graph: ir.Graph) -> bool:
    """Whether the pass changes a graph."""
    return any(True for _ in _groups(graph))


@attrs.frozen(eq=False)
class _Group:
    """Bags that can be looked up together, and the node that joins them.

    Attributes:
        concat: Reads their results one after the other, and nobody else does.
        first: Place of the first among its operands.
        bags: Two at least.

    """

    concat: ir.Node
    first: int
    bags: tuple[ir.Node, ...]


def _groups(graph: ir.Graph) -> Iterator[_Group]:
    """Yield bags that can be looked up together: runs of operands of a `concat`."""
    bags = {node.results[0]: node for node in graph if _is_plain(graph, node)}
    for node in graph:
        if not node_kinds.is_concat(node) or node.attributes.get("axis") not in (1, -1):
            continue
        first = 0
        for key, run in itertools.groupby(
            node.operands, lambda value: _key(bags[value]) if value in bags else None
        ):
            found = tuple(run)
            if key is not None and len(found) > 1:
                yield _Group(node, first, tuple(bags[value] for value in found))
                break
            first += len(found)


_Key: TypeAlias = tuple[ir.DType, Dim, ir.DType, ir.DType, Dim, ir.Record]


def _key(bag: ir.Node) -> _Key:
    """Return the properties that bags share that are looked up together."""
    weight, indices, offsets = (_typed(value) for value in bag.operands)
    others = ir.Record({k: v for k, v in bag.attributes.items() if k != "tables"})
    return (
        weight.dtype,
        weight.shape[1],
        indices.dtype,
        offsets.dtype,
        offsets.shape[0],
        others,
    )


def _is_plain(graph: ir.Graph, node: ir.Node) -> bool:
    """Whether a node sums rows of one table, by indices that are inputs."""
    if not node_kinds.is_embedding_bag(node) or len(node.operands) != _OPERANDS:
        return False
    attributes, inputs = node.attributes, set(graph.inputs)
    return (
        len(attributes.records("tables")) == 1
        and attributes.text("mode") == "sum"
        and attributes.flag("has_offsets")
        and not attributes.flag("include_last_offset")
        and attributes.get("padding_index") is None
        and all(v in inputs and len(graph.uses(v)) == 1 for v in node.operands[1:])
        and len(graph.uses(node.results[0])) == 1
        and node.results[0] not in graph.outputs
    )


def _typed(value: ir.Value) -> ir.TensorType:
    assert value.type is not None  # the pass requires types
    return value.type


def _batch(graph: ir.Graph, group: _Group) -> None:
    """Put one lookup in place of several, before the first."""
    bags = group.bags
    _, indices, offsets = (_typed(value) for value in bags[0].operands)
    lookups: Dim = 0
    for bag in bags:
        lookups = lookups + _typed(bag.operands[1]).shape[0]
    bounds = offsets.shape[0] * len(bags) + 1
    inputs = [
        graph.add_input(graph.fresh_name(name), ir.TensorType(type_.dtype, (size,)))
        for name, type_, size in (
            ("indices", indices, lookups),
            ("offsets", offsets, bounds),
        )
    ]
    out = _typed(bags[0].results[0])
    attributes: dict[str, ir.AttrValue] = {
        **dict(bags[0].attributes),
        "tables": tuple(t for bag in bags for t in bag.attributes.records("tables")),
        "include_last_offset": True,
    }
    batched = graph.insert(
        bags[0],
        "embedding_bag",
        [*(bag.operands[0] for bag in bags), *inputs],
        (
            f"{bags[0].name}.batched",
            ir.TensorType(out.dtype, (out.shape[0], out.shape[1] * len(bags))),
        ),
        attributes,
    )
    concat, end = group.concat, group.first + len(bags)
    operands = (*concat.operands[: group.first], batched, *concat.operands[end:])
    new = Replacement(
        "concat", operands, concat.attributes, concat.results[0], concat.location
    )
    graph.replace({concat: new})
    graph.erase_dead(keep=lambda node: node not in bags)
    graph.erase_unused_inputs(v for bag in bags for v in bag.operands[1:])
