"""Gradients of lookups in embedding tables: of tables, of rows, or applied at once."""

from __future__ import annotations

from collections.abc import Mapping

from perfc.ir import AttrValue, Node, Value
from perfc.ir.ops.optimizer import state_types
from perfc.passes import graphs
from perfc.passes.autodiff.autograd_names import is_split_lookup
from perfc.passes.autodiff.reverse_mode import Gradients, Rows, Rule, Site

_BAG = (
    *("tables", "mode", "has_offsets", "include_last_offset", "weighted"),
    *("padding_index", "popularity"),
)


def embedding(site: Site) -> Gradients:
    """`embedding_dense_backward` of a table, or the rows that were looked up."""
    shape: tuple[AttrValue, ...] = graphs.typed(site.x).shape
    operands, op = (site.grad, site.y), "embedding_backward"
    if site.x not in site.tables.rows:
        return {0: site.op(op, *operands, shape=shape)}
    rows = site.tape.ops(op, 2, *operands, shape=shape, sparse=True)
    site.tables.rows[site.x] = Rows(*rows)
    return {}


def _embedding_bag(site: Site) -> Gradients:
    """Gradients of the weights of samples, where they want one, then of the tables."""
    count = len(site.node.attributes.records("tables"))
    found: dict[int, Value] = {}
    weights = len(site.node.operands) - 1
    if weights in site.wanted and site.node.attributes.flag("weighted"):
        operands = (site.grad, *site.node.operands[:-1])
        found[weights] = site.op("bag_weights_backward", *operands, **site.kept(*_BAG))
    return {**found, **_of_tables(site, count)}


def _of_tables(site: Site, count: int) -> Gradients:
    """`_embedding_bag_backward`; fbgemm's, which updates tables, if it is fbgemm's."""
    tables = site.node.operands[:count]
    if site.wanted.isdisjoint(range(count)):
        return {}
    operands = (site.grad, *site.node.operands[count:])
    kept, op = site.kept(*_BAG), "embedding_bag_backward"
    if site.tables.fused and is_split_lookup(site.node):
        # Update tables and states in place; the states come list by list.
        kind, graph = site.tables.fused, site.tape.graph
        states = [
            graphs.declare_state(
                graph, table, name, state_types(kind, graphs.typed(table))[number]
            )
            for number, name in enumerate(graphs.STATES[kind])
            for table in tables
        ]
        atomic: dict[str, AttrValue] = {"atomic": True} if site.tables.atomic else {}
        name = f"{site.out.name}.{kind}"
        site.tape.effect(
            "embedding_bag_backward",
            (*operands, *tables, *states),
            name,
            **site.kept(*_BAG),
            optimizer=kind,
            **atomic,
        )
        return {}
    if tables[0] in site.tables.rows:
        rows = site.tape.ops(op, 2, *operands, sparse=True, **kept)
        (table,) = site.node.attributes.records("tables")
        site.tables.rows[tables[0]] = Rows(
            *rows,
            popularity=_popularity(site.node),
            kept=table.reader("kept", 1.0),
        )
        return {}
    return dict(enumerate(site.tape.ops(op, count, *operands, **kept)))


def _popularity(node: Node) -> str:
    (table,) = node.attributes.records("tables")
    of_op = node.attributes.get("popularity")
    return str(table.get("popularity", of_op) or "")


RULES: Mapping[str, Rule] = {"embedding_bag": _embedding_bag}
"""Rules of lookups by name."""
