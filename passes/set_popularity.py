"""The pass `set-popularity`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import attrs

from perfc.costmodels import read_popularity
from perfc.ir import (
    AnyKey,
    Graph,
    Node,
    Program,
    Record,
    UsageError,
    inputs_of_backward,
)
from perfc.passes.base import PassContext, Transform
from perfc.passes.facts import ELEMENTS, TYPED

_FORWARD, _BACKWARD = "embedding_bag", "embedding_bag_backward"


@attrs.frozen
class SetPopularity(Transform):
    """Say how look-ups spread over the rows of embedding tables.

    Kernels that look rows up, or update them, then cost what popular rows leave to read
    from memory. It runs before `training`, so that gradients know it.

    Attributes:
        popularity: As `zipf(1.05)`, or a file: what `perfc locality` writes, or a CSV
            file of `hits` and `rows`. The tables of a file are those of the model by
            name, or in order where it has as many.
        table: Whose rows: its parameter, with or without `.weight`; of all tables that
            do not say it themselves if empty.

    Raises:
        PopularityError: it is no popularity, and no file of one.
        UsageError: no look-up has such a table, or there are no tables.

    """

    name: ClassVar[str] = "set-popularity"
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    popularity: str = "uniform"
    table: str = ""

    def __attrs_post_init__(self) -> None:
        """Check the text."""
        read_popularity(self.popularity)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Write it down in the look-ups of every op graph."""
        graphs = [rank.ops for rank in program.classes if rank.ops is not None]
        nodes = [(graph, node) for graph in graphs for node in _lookups(graph)]
        if not nodes:
            msg = f"{program.name} has no embedding bags: popularity is of their rows"
            raise UsageError(msg)
        known = list(dict.fromkeys(name for _, node in nodes for name in _names(node)))
        by_table = self._by_table(program.name, known)
        for graph, node in nodes:
            _set(graph, node, by_table)

    def _by_table(self, model: str, known: Sequence[str]) -> Mapping[str, str]:
        """Return popularity by table, or by nothing for all."""
        texts = read_popularity(self.popularity)
        if self.table:
            wanted = self.table.removesuffix(".weight")
            if wanted not in known:
                raise _no_table(model, self.table, known)
            if wanted not in texts and len(texts) > 1:
                msg = f"{self.popularity} says nothing of table {wanted!r}; it has "
                raise UsageError(msg + _few(list(texts)))
            return {wanted: texts.get(wanted, next(iter(texts.values())))}
        if len(texts) == 1:
            return {"": next(iter(texts.values()))}
        if set(texts) <= set(known):
            return texts
        if len(texts) == len(known):
            return dict(zip(known, texts.values(), strict=True))
        msg = (
            f"{self.popularity} has {len(texts)} tables ({_few(list(texts))}), "
            f"{model} has {len(known)} ({_few(known)}): neither names nor numbers agree"
        )
        raise UsageError(msg)


def _set(graph: Graph, node: Node, by_table: Mapping[str, str]) -> None:
    """Add popularity to the records of a look-up's tables."""
    tables = node.attributes.records("tables")
    names, of_all = _names(node) or [""] * len(tables), by_table.get("")
    changed: list[Record] = []
    for table, name in zip(tables, names, strict=True):
        text = by_table.get(name) if name else None
        if text is None and "popularity" not in table:
            text = of_all
        changed.append(table if text is None else table.updated(popularity=text))
    if tuple(changed) != tables:
        graph.set_attributes(node, tables=tuple(changed))


def _no_table(model: str, table: str, known: Sequence[str]) -> UsageError:
    close = difflib.get_close_matches(table, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {_few(known)}"
    return UsageError(f"{model} looks up no table {table!r}; {hint}")


def _lookups(graph: Graph) -> Iterator[Node]:
    return (node for node in graph if node.op in (_FORWARD, _BACKWARD))


def _names(node: Node) -> list[str]:
    """Return what the tables of a look-up are called; nothing if it does not say."""
    count = len(node.attributes.records("tables"))
    first = inputs_of_backward(node.attributes) if node.op == _BACKWARD else 0
    weights = node.operands[first : first + count]
    if len(weights) < count or (node.op == _BACKWARD and not _updates(node)):
        return []
    return [value.name.removesuffix(".weight") for value in weights]


def _updates(node: Node) -> bool:
    return bool(node.attributes.text("optimizer", ""))


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown}, ... ({len(names)})"  # noqa: PLR2004
