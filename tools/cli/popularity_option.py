"""The option `--popularity`: how look-ups spread over the rows of tables."""

from __future__ import annotations

from collections.abc import Sequence

from perfc.ir import UsageError
from perfc.passes import embeddings


def set_popularities(texts: Sequence[str]) -> list[embeddings.SetPopularity]:
    """Read `TEXT`, `FILE` and `NAME=TEXT`; what is said of one table goes first.

    Raises:
        PopularityError: one is no popularity, and no file of one.
        UsageError: one says nothing, or a table, or all tables, have two.

    """
    found: dict[str, embeddings.SetPopularity] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        table, popularity = (name.strip(), value) if equals else ("", text)
        if not popularity.strip() or (equals and not table):
            msg = f"--popularity {text!r}: expected TEXT, FILE or NAME=TEXT"
            raise UsageError(msg)
        if table in found:
            whose = f"table {table!r}" if table else "all tables"
            msg = f"--popularity of {whose} is given twice; give it once"
            raise UsageError(msg)
        found[table] = embeddings.SetPopularity(popularity.strip(), table)
    return sorted(found.values(), key=lambda each: not each.table)
