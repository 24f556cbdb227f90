"""The pass `set-popularity`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from perfc.costmodels.locality import read_popularity
from perfc.ir import AnyKey, Program, Record, UsageError
from perfc.passes import graphs
from perfc.passes.base import PassContext, Phase, Transform
from perfc.passes.facts import ELEMENTS, TYPED


@attrs.frozen
class SetPopularity(Transform):
    """Say how lookups spread over the rows of embedding tables.

    Kernels that look rows up, or update them, then cost what popular rows leave to read
    from memory. It runs before `training`, so that gradients know it.

    Attributes:
        popularity: As `zipf(1.05)`, or a file: what `perfc locality` writes, or a CSV
            file of `hits` and `rows`. The tables of a file are those of the model by
            name, or in order where it has as many; one alone of another name is all.
        table: Whose rows: its parameter, with or without `.weight`; of all tables that
            do not say it themselves if empty.

    """

    name: ClassVar[str] = "set-popularity"
    phase: ClassVar[Phase] = Phase.FORWARD
    requires: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})
    preserves: ClassVar[frozenset[AnyKey]] = frozenset({TYPED, ELEMENTS})

    popularity: str = "uniform"
    table: str = ""

    def __attrs_post_init__(self) -> None:
        """Check the text."""
        read_popularity(self.popularity)

    def run(self, program: Program, ctx: PassContext) -> None:
        """Write it down in the lookups of every op graph."""
        nodes = graphs.table_lookups(program)
        by_table = self._by_table(program, graphs.table_names(nodes))
        of_all = by_table.get("")

        def said(name: str, table: Record) -> Record:
            text = by_table.get(name) if name else None
            if text is None and "popularity" not in table:
                text = of_all
            return table if text is None else table.updated(popularity=text)

        graphs.change_tables(nodes, said)

    def _by_table(self, program: Program, known: Sequence[str]) -> Mapping[str, str]:
        """Return popularity by table, or by nothing for all."""
        texts = read_popularity(self.popularity)
        if self.table:
            wanted = graphs.require_table(program, self.table, known)
            if wanted not in texts and len(texts) > 1:
                msg = f"{self.popularity} says nothing of table {wanted!r}; it has "
                raise UsageError(msg + graphs.listed(list(texts)))
            return {wanted: texts.get(wanted, next(iter(texts.values())))}
        if set(texts) <= set(known):
            return texts
        if len(texts) == 1:
            return {"": next(iter(texts.values()))}
        if len(texts) == len(known):
            return dict(zip(known, texts.values(), strict=True))
        msg = (
            f"{self.popularity} has {len(texts)} tables "
            f"({graphs.listed(list(texts))}), "
            f"{program.name} has {len(known)} ({graphs.listed(known)}): neither names "
            "nor "
            "numbers agree"
        )
        raise UsageError(msg)
