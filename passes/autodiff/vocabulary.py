"""What ranks that share a vocabulary compute: lookups, and the loss of split scores.

As `VocabParallelEmbedding` and `_VocabParallelCrossEntropy` of Megatron-LM. Each rank
has the rows of the vocabulary from a first to a last; all that fall outside are masked.
Ranks run the same graph, so the rows are those of the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import DTYPES, AttrValue, Node, Value
from perfc.ir.dims import Dim, product
from perfc.ir.node_kinds import (
    is_all_gather,
)
from perfc.passes import graphs
from perfc.passes.autodiff.wanted_gradients import DETACH

ALIKE = "alike"
"""Attribute of an `all_gather` whose result all ranks use in the same way."""

_COMMUNICATOR = ("group", "ranks", "stride", "stream")
_F32 = DTYPES["f32"]


def communicator_of(node: Node) -> dict[str, AttrValue]:
    """Return the attributes of a collective that say who takes part, and where."""
    found = node.attributes
    return {name: found[name] for name in _COMMUNICATOR if name in found}


def gathered_scores(value: Value) -> Node | None:
    """Return the node that gathers *value* along the last axis, if all ranks use it."""
    node = value.producer
    if node is None or not is_all_gather(node) or not node.attributes.flag(ALIKE):
        return None
    last = graphs.typed(value).rank - 1
    return node if node.attributes.integer("axis", 0) % (last + 1) == last else None


def mask_outside(tape: graphs.Tape, tokens: Value, count: Dim) -> tuple[Value, Value]:
    """Return a mask of *tokens* outside [0, count), and row numbers with 0 for those.

    Both have the shape of *tokens*. *count* is the rows that this rank holds; it stands
    for the first rank, whose rows begin at 0.
    """
    first, end = _integer(tape, tokens, 0), _integer(tape, tokens, count)
    below = tape.op("less", tokens, first)
    outside = tape.op("bitwise_or", below, tape.op("greater_equal", tokens, end))
    copied = tape.op("copy", tokens)
    rows = tape.op("sub", copied, first)
    return outside, tape.op("masked_fill", rows, outside, first, in_place=True)


def write_split_cross_entropy(
    tape: graphs.Tape, part: Value, labels: Value, communicator: Mapping[str, AttrValue]
) -> Value:
    """Append the mean loss of logits of which each rank has a part; return the scalar.

    *part* is [*batch, vocabulary / ranks], *labels* [*batch], numbered over the whole.

    All-reduced are one number a row, three times: the largest score, that of the label,
    and the sum of exponentials. Autograd sees all of it as one function.
    """
    *batch, count = graphs.typed(part).shape
    rows = product(batch)
    narrow = graphs.typed(part).dtype.bits < _F32.bits
    scores = tape.op("cast", part, dtype=_F32) if narrow else part
    read = tape.op("alias", scores, call=DETACH)
    top = tape.op("reduce", read, kind="max", axes=(-1,), keepdims=True)
    top = tape.op("all_reduce", top, kind="max", **communicator)
    read = tape.op("sub", read, top, in_place=True)
    outside, places = mask_outside(tape, tape.reshape(labels, rows), count)
    numbers = (_integer(tape, labels, n) for n in (0, rows, 1))
    every = tape.op("range", *numbers, written=True)
    flat = tape.reshape(read, rows, count)
    own = tape.op("index", flat, every, places, axes=(0, 1))
    # Rows whose label another rank holds become 0: summed over ranks, one is left.
    none = tape.number(own, 0.0)
    own = tape.op("masked_fill", own, outside, none, in_place=True)
    shares = tape.op("exp", read, in_place=True)
    total = tape.op("reduce", shares, kind="sum", axes=(-1,), keepdims=True)
    own = tape.op("all_reduce", own, **communicator)
    total = tape.op("all_reduce", total, **communicator)
    losses = tape.op("sub", tape.op("log", tape.reshape(total, rows)), own)
    shares = tape.op("div", shares, total, in_place=True)
    saved = (losses, shares, every, places, outside)
    losses = tape.op("split_cross_entropy", scores, *saved)
    return tape.op("reduce", losses, kind="mean")


def _integer(tape: graphs.Tape, like: Value, number: Dim) -> Value:
    name = tape.graph.fresh_name(f"{tape.constants}.integer")
    attributes: dict[str, AttrValue] = {"dtype": graphs.typed(like).dtype, "shape": ()}
    attributes["elements"] = (number,)
    return tape.node("constant", (), [name], attributes).results[0]
