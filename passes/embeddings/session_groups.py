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
    """Refuse a mean session length that is none."""
    if not (session >= 1 and math.isfinite(session)):
        msg = f"{where}{session:g}: expected the mean samples of a session, 1 or more"
        raise UsageError(msg)


def read_stays(text: str) -> dict[str, float]:
    """Read `FEATURE:d,...`; `;` may stand for the commas."""
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

    """
    if not stays:
        msg = "stay says nothing: expected FEATURE:d, as user.*:0.95"
        raise UsageError(msg)
    entry_of = _matches("stay", [*stays], known)
    written = [name.strip() for name in re.split("[,;]", groups) if name.strip()]
    group_of = _matches("groups", written, known) if written else entry_of
    for table, name in group_of.items():
        if table not in entry_of:
            msg = f"group {name!r} has {table!r}, of which stay says nothing"
            raise UsageError(msg)
    members = {name: [t for t in known if group_of.get(t) == name] for name in stays}
    if written:
        members = {n: [t for t in known if group_of.get(t) == n] for n in written}
    return [
        _group(session, name, tables, {entry_of[t]: stays[entry_of[t]] for t in tables})
        for name, tables in members.items()
        if tables
    ]


def _group(
    session: float, name: str, tables: Sequence[str], entries: Mapping[str, float]
) -> FeatureGroup:
    stay = math.prod(entries.values())
    return FeatureGroup(name, tuple(tables), stay, kept_share(session, stay))


def _matches(option: str, texts: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Return which of the texts each table has; a name wins against patterns."""
    patterns = [(text, part) for text in texts for part in _parts(text, known)]
    named: dict[str, str] = {}
    matched: dict[str, str] = {}
    for text, part in patterns:
        tables = matched_names(part, known)
        if not tables:
            msg = f"{option}: no feature is {part!r}; there are {listed(known)}"
            raise UsageError(msg)
        of = named if part in known else matched
        for table in tables:
            if of.setdefault(table, text) != text:
                msg = (
                    f"{option}: {of[table]!r} and {text!r} both name {table!r}, which "
                    "has one inverse index: name it once"
                )
                raise UsageError(msg)
    return {**matched, **named}


def _parts(text: str, known: Sequence[str]) -> list[str]:
    """Return the patterns of a text; one that matches as it is may have a `+`."""
    if matched_names(text, known):
        return [text]
    return [part.strip() for part in text.split("+")]


def matched_names(pattern: str, known: Sequence[str]) -> list[str]:
    """Return the names that a pattern with `*`, or a regular expression, matches."""
    plain = pattern.removesuffix(".weight")
    globbed = [name for name in known if fnmatch.fnmatchcase(name, plain)]
    if globbed:
        return globbed
    try:
        return [name for name in known if re.fullmatch(pattern, name)]
    except re.error:
        return []
