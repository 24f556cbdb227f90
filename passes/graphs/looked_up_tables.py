"""Embedding tables that graphs look up: their names, and what is said of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Sequence
from weakref import WeakKeyDictionary

from perfc.costmodels.embedding import DRAM, HOST, REMOTE, UVM, UVM_CACHING
from perfc.ir import OPTIMIZER_STATES, Graph, Node, Program, Record, UsageError, Value
from perfc.ir.node_kinds import has_trait, is_embedding_bag
from perfc.ir.opdef import Trait

Change = Callable[[str, Record], Record]
"""Function from a table's name, empty where unsaid, and its record to a new record."""


def table_lookups(program: Program) -> list[tuple[Graph, Node]]:
    """Return the lookups in tables, and their gradients."""
    graphs = [rank.ops for rank in program.classes if rank.ops is not None]
    found = [(graph, node) for graph in graphs for node in graph if _has_tables(node)]
    if not found:
        msg = f"{program.name} has no embedding bags: there are no tables to speak of"
        raise UsageError(msg)
    return found


def table_names(nodes: Sequence[tuple[Graph, Node]]) -> list[str]:
    """Return the names of the tables: their parameters, without `.weight`."""
    return list(dict.fromkeys(name for _, node in nodes for name in _names(node)))


def require_table(program: Program, table: str, known: Sequence[str]) -> str:
    """Return the name of a table."""
    wanted = table.removesuffix(".weight")
    if wanted not in known:
        close = difflib.get_close_matches(table, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {listed(known)}"
        msg = f"{program.name} looks up no table {table!r}; {hint}"
        raise UsageError(msg)
    return wanted


def change_tables(nodes: Sequence[tuple[Graph, Node]], change: Change) -> None:
    """Change what lookups say of their tables."""
    for graph, node in nodes:
        tables = node.attributes.records("tables")
        names = _names(node) or [""] * len(tables)
        changed = tuple(map(change, names, tables))
        if changed != tables:
            graph.set_attributes(node, tables=changed)


_FOUND: WeakKeyDictionary[Graph, tuple[int, tuple[Node, ...]]] = WeakKeyDictionary()
"""Lookups in tables outside of device memory, and of which version of the graph."""


def placed_lookups(graph: Graph) -> tuple[Node, ...]:
    """Return lookups, and their gradients, in tables outside of device memory."""
    version, found = _FOUND.get(graph, (-1, ()))
    if version != graph.version:
        found = tuple(node for node in graph if _has_tables(node) and _is_placed(node))
        _FOUND[graph] = graph.version, found
    return found


def _is_placed(node: Node) -> bool:
    return any(table.get("tier") for table in node.attributes.records("tables"))


def require_updated_in_place(graph: Graph, updated: Container[Value]) -> None:
    """Refuse tables in host memory that an optimizer updates, not their lookup."""
    for value, table in tables_off_device(graph).items():
        if value not in updated:
            continue
        hosted = table["tier"] in (UVM, UVM_CACHING)
        place = "in host memory" if hosted else "outside of device memory"
        kinds = ", ".join(OPTIMIZER_STATES)
        msg = (
            f"table {value.name!r} is {place}, where only batched lookups update "
            f"tables (with {kinds}); batch them (--pass batch-embeddings, or a "
            "workload's embedding=batched), or leave the table in device memory"
        )
        raise UsageError(msg)


_OF_HOST = frozenset({UVM, UVM_CACHING, HOST, DRAM})


def tables_off_device(graph: Graph, *, on_cpu: bool = False) -> dict[Value, Record]:
    """Return embedding tables outside of device memory, and what is said of them.

    Device memory is the host's on a CPU.

    States of fused updates that have a number for each element lie where their table
    does, without a cache; those of a number a row are on the device (FBGEMM's
    `construct_split_state`). Of other tiers all states lie beside the rows.
    """
    placed: dict[Value, Record] = {}
    for node in graph:
        if not _has_tables(node):
            continue
        tables = node.attributes.records("tables")
        own = _OF_HOST if on_cpu else frozenset[str]()
        hosted = [
            (i, table)
            for i, table in enumerate(tables)
            if table.get("tier") and table["tier"] not in own
        ]
        if is_embedding_bag(node):
            placed.update((node.operands[i], table) for i, table in hosted)
            continue
        states = node.operands[_inputs_of_backward(node) + len(tables) :]
        for number, table in hosted:
            placed.update(_states_off_device(table, states[number :: len(tables)]))
    return placed


def _states_off_device(table: Record, states: Sequence[Value]) -> dict[Value, Record]:
    """Return the states of a table that are not on the device, and where they are."""
    if table["tier"] in (UVM, UVM_CACHING):
        wide = [value for value in states if value.type and value.type.rank > 1]
        return dict.fromkeys(wide, table.updated(tier=UVM))
    if table["tier"] in (HOST, REMOTE):
        return dict.fromkeys(states, table)
    return dict.fromkeys(states, table.updated(rows=0))  # no bookkeeping of their own


def listed(names: Sequence[str]) -> str:
    """Return the first few names."""
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown}, ... ({len(names)})"  # noqa: PLR2004


def _has_tables(node: Node) -> bool:
    return has_trait(node, Trait.EMBEDDING_BAG)


def _names(node: Node) -> list[str]:
    """Return the names of the tables of a lookup; nothing if it does not say them."""
    count, first = len(node.attributes.records("tables")), 0
    if not is_embedding_bag(node):
        if not node.attributes.text("optimizer", ""):
            return []
        first = _inputs_of_backward(node)
    weights = node.operands[first : first + count]
    return [value.name.removesuffix(".weight") for value in weights]


def _inputs_of_backward(node: Node) -> int:
    from perfc.ir.ops.embedding_backward import inputs_of_backward  # noqa: PLC0415 - lazy

    return inputs_of_backward(node.attributes)
