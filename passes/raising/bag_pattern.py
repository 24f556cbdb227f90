"""What an exported embedding bag looks like, and how it is recognised.

By structure: names, the order of nodes and of commutative operands are
immaterial. Metadata are asked one thing only, whether a factor whose numbers are
not in the file stands for absent weights. The structure, in either PyTorch
exporter's form:

- a loop adds one row per iteration to its result, as a scan output or as a
  sequence that is joined afterwards; `pooled_rows.py` traces that row back to
  the one gather of rows of a table, inside the body or before it;
- the gather's indices are the input, looked through flattening and the body's
  slice;
- bounds: the integer vector that the body reads at the loop counter. It is the
  offsets with the number of indices appended (offsets), or the offsets alone
  (`include_last_offset`), or an arithmetic progression (2-D indices).

Whatever does not fit in every respect is no bag: it stays a loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import attrs

from perfc.ir import Graph, Node, Value
from perfc.passes.raising import pooled_rows

_MATRIX_RANK = 2
_ORIGIN = re.compile(r"aten\.embedding_bag[.\w]*\(args = \((.*)\)")
_WEIGHTS = 6


@attrs.frozen(eq=False)
class Bag:
    """An embedding bag found in a graph.

    Attributes:
        weight: The table, [rows, dim].
        indices: Row numbers: a vector with `offsets`, else a matrix.
        offsets: Where each bag starts, or None for 2-D indices.
        sample_weights: One factor per lookup, or None.
        mode: `sum`, `mean` or `max`.
        include_last_offset: Whether `offsets` ends with the number of indices.
        padding_index: Row that does not count, or None.
        rows: Rows of the table.
        dim: Columns of the table.
        result: The value that holds the pooled rows.
        result_node: The node that makes it.

    """

    weight: Value
    indices: Value
    offsets: Value | None
    sample_weights: Value | None
    mode: str
    include_last_offset: bool
    padding_index: int | None
    rows: int
    dim: int
    result: Value
    result_node: Node


def match_bag(graph: Graph, loop: Node) -> Bag | None:
    """Return the bag that *loop* computes, or None if it is something else."""
    region = loop.regions[0]
    body = dict.fromkeys(_walk(region)).keys()
    found = _result(graph, loop, pooled_rows.Tracer(body))
    bounds = _bounds(region, body)
    if found is None or bounds is None:
        return None
    result, result_node, pooled = found
    weight, picked = pooled.rows.gather.operands
    indices = _source(picked, body)
    layout = _layout(bounds, indices)
    factor = _sample_weights(pooled, body, loop)
    mode = _mode(pooled.kinds)
    if layout is None or factor is None or mode is None or weight.type is None:
        return None
    rows, dim = weight.type.shape
    if not isinstance(rows, int) or not isinstance(dim, int):
        return None
    return Bag(
        weight=weight,
        indices=indices,
        offsets=layout.offsets,
        sample_weights=factor.value,
        mode=mode,
        include_last_offset=layout.include_last,
        padding_index=_positive(pooled.rows.padding_index, rows),
        rows=rows,
        dim=dim,
        result=result,
        result_node=result_node,
    )


def _walk(region: Graph) -> Iterator[Node]:
    for node in region:
        yield node
        for inner in node.regions:
            yield from _walk(inner)


def _result(
    graph: Graph, loop: Node, tracer: pooled_rows.Tracer
) -> tuple[Value, Node, pooled_rows.Pooled] | None:
    """The one result of the loop that is read, and how its rows come about."""
    region = loop.regions[0]
    carried = len(region.inputs) - 2
    read = [
        (index, value)
        for index, value in enumerate(loop.results)
        if graph.readers(value) or value in graph.outputs
    ]
    if len(read) != 1 or carried < 0 or len(region.outputs) != len(loop.results) + 1:
        return None
    index, value = read[0]
    row = region.outputs[index + 1]
    if index >= carried:
        pooled = tracer.trace(row)
        if not isinstance(pooled, pooled_rows.Pooled) or pooled.keeps_axis:
            return None
        return value, loop, pooled
    return _joined(graph, loop, index, tracer)


def _joined(
    graph: Graph, loop: Node, index: int, tracer: pooled_rows.Tracer
) -> tuple[Value, Node, pooled_rows.Pooled] | None:
    """A sequence, empty at first, that gets one row more and is joined at last."""
    region = loop.regions[0]
    start = loop.operands[index - len(region.inputs) + 2 :][:1]
    insert = region.outputs[index + 1].producer
    uses = graph.uses(loop.results[index])
    if not start or insert is None or len(uses) != 1:
        return None
    first = pooled_rows.looked_through(start[0], pooled_rows.SAME_SHAPE).producer
    join = uses[0].node
    if (
        first is None
        or first.op != "sequence_empty"
        or insert.op != "sequence_insert"
        or len(insert.operands) != 2
        or insert.operands[0] is not region.inputs[index + 2]
        or join.op != "concat_from_sequence"
        or join.attributes.integer("axis") != 0
        or join.attributes.integer("new_axis", 0) != 0
    ):
        return None
    pooled = tracer.trace(insert.operands[1])
    if not isinstance(pooled, pooled_rows.Pooled) or not pooled.keeps_axis:
        return None
    return join.results[0], join, pooled


def _mode(kinds: AbstractSet[str]) -> str | None:
    """Tell the pooling mode; a mean may be spelled as a sum, divided."""
    if kinds == {"mean", "sum"}:
        return "mean"
    return next(iter(kinds)) if len(kinds) == 1 else None


def _positive(padding_index: int | None, rows: int) -> int | None:
    if padding_index is None or padding_index >= 0:
        return padding_index
    return padding_index + rows


def _bounds(region: Graph, body: AbstractSet[Node]) -> Value | None:
    """The outer integer vector that the body reads at its counter."""
    inner = {result for node in body for result in node.results}
    inner |= {v for node in body for r in node.regions for v in r.inputs}
    inner |= set(region.inputs)
    found: dict[Value, None] = {}
    for node in body:
        if node.op not in ("gather", "slice"):
            continue
        source, position = node.operands[0], node.operands[1]
        if source not in inner and _is_counter(position, region, body):
            found[_unsliced(source)] = None
    bounds = next(iter(found)) if len(found) == 1 else None
    is_integer = bounds is not None and not (bounds.type and bounds.type.dtype.is_float)
    return bounds if is_integer else None


def _is_counter(value: Value, region: Graph, body: AbstractSet[Node]) -> bool:
    """Whether *value* is the loop's counter, maybe plus a constant."""
    while value not in region.inputs:
        producer = value.producer
        if producer is None or producer not in body:
            return False
        if producer.op not in pooled_rows.SAME_ELEMENTS and producer.op != "add":
            return False
        operands = [v for v in producer.operands if not _is_constant(v)]
        value = operands[0] if operands else producer.operands[0]
    return True


def _is_constant(value: Value) -> bool:
    producer = pooled_rows.looked_through(value, pooled_rows.SAME_ELEMENTS).producer
    return producer is not None and producer.op == "constant"


def _unsliced(value: Value) -> Value:
    """Look through the legacy exporter's `bounds[1:]`."""
    value = pooled_rows.looked_through(value, pooled_rows.SAME_SHAPE)
    producer = value.producer
    if producer is None or producer.op != "slice":
        return value
    start, step = (
        pooled_rows.elements_of(producer.operands[index]) for index in (1, 4)
    )
    if (start, step) != ((1,), (1,)):
        return value
    return pooled_rows.looked_through(producer.operands[0], pooled_rows.SAME_SHAPE)


def _source(value: Value, body: AbstractSet[Node]) -> Value:
    """The value as the model was given it: not sliced per bag, not flattened."""
    while True:
        value = pooled_rows.looked_through(value, pooled_rows.SAME_ELEMENTS)
        producer = value.producer
        if producer is None or producer not in body or producer.op != "slice":
            return value
        value = producer.operands[0]


@attrs.frozen(eq=False)
class _Layout:
    """How the indices are cut into bags."""

    offsets: Value | None
    include_last: bool = False


def _layout(bounds: Value, indices: Value) -> _Layout | None:
    """Tell offsets, offsets with the last one included, and 2-D indices apart."""
    rank = _rank(indices)
    producer = bounds.producer
    joined = producer is not None and producer.op == "concat"
    first = bounds if producer is None else producer.operands[0] if joined else bounds
    starts = pooled_rows.looked_through(first, pooled_rows.SAME_SHAPE)
    if rank == _MATRIX_RANK:
        even = starts.producer is not None and starts.producer.op in (
            "range",
            "constant",
        )
        return _Layout(None) if even else None
    if rank != 1:
        return None
    return _Layout(starts) if joined else _Layout(bounds, include_last=True)


def _rank(value: Value) -> int | None:
    """Return how many axes *value* has, before types are inferred."""
    while value.type is None:
        producer = value.producer
        if producer is None or producer.op not in pooled_rows.SAME_RANK:
            return None
        value = producer.operands[0]
    return value.type.rank


@attrs.frozen(eq=False)
class _Factor:
    """The factor of each lookup; None for one."""

    value: Value | None


def _sample_weights(
    pooled: pooled_rows.Pooled, body: AbstractSet[Node], loop: Node
) -> _Factor | None:
    """The weights of the lookups; None if they are something else."""
    if pooled.rows.factor is None:
        return _Factor(None)
    value = _source(pooled.rows.factor, body)
    producer = value.producer
    expanded = producer is not None and producer.op == "expand"
    if producer is not None and expanded:
        value = pooled_rows.looked_through(
            producer.operands[0], pooled_rows.SAME_ELEMENTS
        )
        producer = value.producer
    if producer is not None and producer.attributes.get("value") == 1:
        return _Factor(None)
    if value.type is not None and value.type.rank != 1:
        stored = producer is None or producer.op == "constant"
        return _Factor(None) if stored and _is_unweighted(loop) else None
    return None if expanded else _Factor(value)


def _is_unweighted(loop: Node) -> bool:
    """Whether the exporter noted a call without weights.

    The arguments are weight, indices, offsets, scale_grad, mode, sparse,
    per_sample_weights, and more.
    """
    match = _ORIGIN.match(loop.location.origin)
    if match is None:
        return False
    arguments = [part.strip() for part in match[1].split(",")]
    return arguments[_WEIGHTS : _WEIGHTS + 1] in ([], ["None"])
