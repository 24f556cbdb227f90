"""Recognise embedding bags in what exporters make of them."""

from __future__ import annotations

from typing import ClassVar

import attrs

from perfc.ir import AttrValue, Graph, Node, Program, Record, Value
from perfc.ir.core import Replacement
from perfc.ir.location import Location
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.raising.bag_pattern import Bag, match_bag


@attrs.frozen
class RaiseEmbeddingBag(Transform):
    """Replace each loop that pools rows of a table by one `embedding_bag`.

    Both PyTorch exporters write `nn.EmbeddingBag` as a Loop over bags: the
    legacy one gathers the rows inside the body, the other one before it, into a
    sequence. `bag_pattern.py` tells what is recognised.
    """

    name: ClassVar[str] = "raise-embedding-bag"
    phase: ClassVar[Phase] = Phase.SOURCE

    def run(self, program: Program, ctx: PassContext) -> None:
        """Raise every bag of every op graph."""
        for rank in program.classes:
            if rank.ops is not None:
                _raise_bags(rank.ops, ctx)


def _raise_bags(graph: Graph, ctx: PassContext) -> None:
    replacements: dict[Node, Replacement] = {}
    for node in graph:
        if node.op != "loop":
            continue
        bag = match_bag(graph, node)
        if bag is None:
            if "embedding_bag" in node.location.origin:
                ctx.warn(
                    "bag-not-raised",
                    "a loop exported from embedding_bag has an unknown form; "
                    "it is costed by its bytes",
                    str(node),
                )
            continue
        replacements[bag.result_node] = _replacement(bag, node.location)
    if replacements:
        graph.replace(replacements)
        graph.erase_dead(keep=lambda node: node.has_effect)


def _replacement(bag: Bag, location: Location) -> Replacement:
    table = {"rows": bag.rows, "dim": bag.dim}
    attributes: dict[str, AttrValue] = {"tables": (Record(table),), "mode": bag.mode}
    if bag.padding_index is not None:
        attributes["padding_index"] = bag.padding_index
    flags = {
        "has_offsets": bag.offsets is not None,
        "include_last_offset": bag.include_last_offset,
        "weighted": bag.sample_weights is not None,
    }
    attributes.update({name: True for name, value in flags.items() if value})
    operands: list[Value] = [bag.weight, bag.indices]
    operands += [v for v in (bag.offsets, bag.sample_weights) if v is not None]
    return Replacement(
        "embedding_bag", tuple(operands), Record(attributes), bag.result, location
    )
