"""What tables, plans and figures must be before they are priced."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from perfc.ir import PerfcError, UsageError
from perfc.passes import DATA_PARALLEL, Placement, Plan, World, embeddings
from perfc.planning.plans.cost import Table


class _Named(Protocol):
    name: str


def positive(instance: object, field: _Named, value: float) -> None:
    """Refuse a figure that is not a number above nought."""
    if not (math.isfinite(value) and value > 0):
        owner = type(instance).__name__
        msg = f"{owner}: {field.name} is {value}, expected a number above 0"
        raise UsageError(msg)


def one_of(what: str, value: str, known: Iterable[str]) -> None:
    """Refuse a word that is none of those known."""
    names = list(known)
    if value not in names:
        msg = f"{what} {value!r} is none of {', '.join(names)}"
        raise UsageError(msg)


def check_tables(tables: Sequence[Table]) -> None:
    """Refuse tables that cannot be: each has rows, columns and a pooling."""
    if not tables:
        msg = "there are no embedding tables; expected one at least"
        raise PerfcError(msg)
    for table in tables:
        check_table(table)
    name, times = Counter(table.name for table in tables).most_common(1)[0]
    if times > 1:
        msg = f"{times} tables are named {name!r}; plans tell them apart by name"
        raise PerfcError(msg)


def check_table(table: Table) -> None:
    """Refuse a table that cannot be."""
    for field in ("rows", "dim", "element_bytes"):
        found = getattr(table, field)
        if not (math.isfinite(found) and found > 0):
            msg = f"table {table.name!r}: {field} is {found}, expected more than 0"
            raise PerfcError(msg)
    if not (math.isfinite(table.pooling) and table.pooling >= 0):
        found = table.pooling
        msg = f"table {table.name!r}: pooling is {found}, expected 0 or more"
        raise PerfcError(msg)


def check_placement(table: Table, placement: Placement, world: World) -> None:
    """Refuse a placement that names ranks which are not there."""
    if placement.kind not in _PLACES:
        known = ", ".join(_PLACES)
        msg = f"table {table.name!r}: {placement.kind!r} is none of {known}"
        raise PerfcError(msg)
    many, what = _PLACES[placement.kind]
    places = placement.places
    last = (world.nodes if what == "node" else world.ranks) - 1
    found = f"table {table.name!r}: {placement.kind} on {list(places)}"
    if what == "all":
        _refuse_unless(not places, f"{found}, expected no places: all hold it")
        return
    wanted = f"one {what}" if not many else f"{what}s"
    fitting = len(places) == 1 or (many and len(places) > 0)
    _refuse_unless(fitting, f"{found}, expected {wanted}")
    within = all(0 <= place <= last for place in places)
    _refuse_unless(within, f"{found}, expected {wanted} of 0 to {last}")
    _refuse_unless(len(set(places)) == len(places), f"{found}, one of them twice")
    even = table.dim % len(places) == 0
    _refuse_unless(even, f"{found}, which do not share {table.dim} columns evenly")


_PLACES: Mapping[str, tuple[bool, str]] = {
    embeddings.TABLE_WISE: (False, "rank"),
    embeddings.COLUMN_WISE: (True, "rank"),
    embeddings.ROW_WISE: (False, "all"),
    embeddings.TABLE_ROW_WISE: (False, "node"),
    embeddings.GRID: (True, "node"),
    DATA_PARALLEL: (False, "all"),
}
"""Places of each kind: whether it may have several, and what they are."""


def _refuse_unless(truth: bool, problem: str) -> None:  # noqa: FBT001 - a test's answer
    if not truth:
        raise PerfcError(problem)


def check_plan(tables: Sequence[Table], plan: Plan, world: World) -> None:
    """Refuse a plan that misses a table, or places one that is not there."""
    check_tables(tables)
    names = {table.name for table in tables}
    if missing := [table.name for table in tables if table.name not in plan]:
        msg = f"the plan says nothing of {_some(missing)}"
        raise PerfcError(msg)
    if unknown := sorted(plan.keys() - names):
        msg = f"the plan places {_some(unknown)}, which no table is named"
        raise PerfcError(msg)
    for table in tables:
        check_placement(table, plan[table.name], world)


_SHOWN = 6


def _some(names: Iterable[str]) -> str:
    found = list(names)
    more = f", … ({len(found)} in all)" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
