"""Groups of features whose lists are deduplicated together, as options say them."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence

import attrs

from perfc.costmodels.locality import kept_share
from perfc.ir import UsageError
from perfc.passes.graphs import listed


@attrs.frozen
class FeatureGroup:
    """Features with one inverse index: a list is left out where all of them stay.

    Attributes:
        name: What was written for it.
        tables: The tables that they are looked up in.
        stay: Probability that the lists of all of them stay as they are.
        kept: Share of the lists of a batch that differ.

    """

    name: str
    tables: tuple[str, ...]
    stay: float
    kept: float

    @property
    def factor(self) -> float:
        """How many lists there are for each that is kept."""
        return 1 / self.kept


def check_session(session: float, where: str) -> None:
    """Refuse a mean session length that is none.

    Raises:
        UsageError: it is.

    """
    if not (session >= 1 and math.isfinite(session)):
        msg = f"{where}{session:g}: expected the mean samples of a session, 1 or more"
        raise UsageError(msg)


def read_stays(text: str) -> dict[str, float]:
    """Read `FEATURE:d,...`; `;` may stand for the commas.

    Raises:
        UsageError: an item is not of that form, or given twice.

    """
    stays: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in re.split(r"[,;]", text))):
        name, colon, number = item.rpartition(":")
        if not colon or not name.strip():
            msg = f"stay={item!r}: expected FEATURE:d, as user.*:0.95"
            raise UsageError(msg)
        if name.strip() in stays:
            msg = f"stay of {name.strip()!r} is given twice"
            raise UsageError(msg)
        stays[name.strip()] = _probability(name.strip(), number.strip())
    return stays


def _probability(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1:
        msg = f"stay of {name!r} is {text}: expected a probability from 0 to 1"
        raise UsageError(msg)
    return found


def feature_groups(
    session: float, stays: Mapping[str, float], groups: str, known: Sequence[str]
) -> list[FeatureGroup]:
    """Return the groups that options ask for.

    What one entry of *stays* matches is a group, whose lists all stay with its
    probability. Groups that are written join such entries, or parts of them; entries
    are taken to be independent of each other.

    Args:
        session: Mean samples of a session inside a batch.
        stays: Probability by feature, or by pattern of features.
        groups: Groups, as `a+b;c.*`; empty for one an entry.
        known: Names of the tables.

    Raises:
        UsageError: a name or a pattern matches no table, or a table is matched twice.

    """
    entry_of = _matches("stay", stays, known)
    if not stays:
        msg = "stay says nothing: expected FEATURE:d, as user.*:0.95"
        raise UsageError(msg)
    names = [name.strip() for name in groups.split(";") if name.strip()] or [*stays]
    members: dict[str, tuple[str, ...]] = {}
    for name in names:
        patterns = [part.strip() for part in name.split("+")] if groups else [name]
        found = _matches("groups", patterns, known) if groups else entry_of
        members[name] = tuple(t for t in known if found.get(t) in patterns)
        for table in members[name]:
            if table not in entry_of:
                msg = f"group {name!r} has {table!r}, of which stay says nothing"
                raise UsageError(msg)
    _check_once(members)
    return [
        _group(session, name, tables, {entry_of[t]: stays[entry_of[t]] for t in tables})
        for name, tables in members.items()
        if tables
    ]


def _group(
    session: float, name: str, tables: tuple[str, ...], entries: Mapping[str, float]
) -> FeatureGroup:
    stay = math.prod(entries.values())
    return FeatureGroup(name, tables, stay, kept_share(session, stay))


def _check_once(members: Mapping[str, Sequence[str]]) -> None:
    seen: dict[str, str] = {}
    for name, tables in members.items():
        for table in tables:
            if seen.setdefault(table, name) != name:
                msg = (
                    f"{table!r} is in the groups {seen[table]!r} and {name!r}: it has "
                    "one inverse index"
                )
                raise UsageError(msg)


def _matches(
    option: str, patterns: Sequence[str] | Mapping[str, float], known: Sequence[str]
) -> dict[str, str]:
    """Return which of the patterns each table has; a name wins against patterns.

    Raises:
        UsageError: a pattern matches nothing, or two match the same table.

    """
    found = {name: name for name in known if name in patterns}
    for pattern in patterns:
        if pattern in known:
            continue
        matched = _matched(pattern, known)
        if not matched:
            msg = f"{option}: no feature is {pattern!r}; there are {listed(known)}"
            raise UsageError(msg)
        for name in matched:
            if name in found and found[name] not in (name, pattern):
                msg = (
                    f"{option}: {pattern!r} and {found[name]!r} both match {name!r}; "
                    "give each feature once"
                )
                raise UsageError(msg)
            found.setdefault(name, pattern)
    return found


def _matched(pattern: str, known: Sequence[str]) -> list[str]:
    """Return what a pattern matches: with `*` and `?`, else as a regular expression."""
    plain = pattern.removesuffix(".weight")
    globbed = [name for name in known if fnmatch.fnmatchcase(name, plain)]
    if globbed:
        return globbed
    try:
        return [name for name in known if re.fullmatch(pattern, name)]
    except re.error:
        return []
