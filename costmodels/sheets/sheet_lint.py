"""The linter of target sheets: every number is there, sourced, and possible."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias, cast

from perfc.costmodels import sheets
from perfc.costmodels.machine import TargetError
from perfc.costmodels.sheets.power_section import power_problems
from perfc.costmodels.sheets.price_section import price_problems
from perfc.costmodels.sheets.sheet_fields import (
    LAUNCH,
    MODES,
    TIERS,
    FieldValue,
    SheetField,
    fields_of_tier,
    fields_with,
    is_optional_section,
    is_required,
    is_synchronous,
    quoted,
    shown,
)
from perfc.costmodels.sheets.sheet_physics import Problem, find_contradictions
from perfc.ir.support import parse_toml

Table: TypeAlias = Mapping[str, object]

TARGET = "target"
"""Key of a system's sheet: the sheet of its GPUs."""

_OF_A_NODE = ("host.", "power.node", "power.host")


@functools.lru_cache(64)
def parse_sheet(text: str, where: str) -> Table:
    """Return the TOML tables of a sheet's text, which nobody changes."""
    return parse_toml(text, TargetError, where)


def check_sheet(document: Table, where: str) -> None:
    """Raise `TargetError` with the first problem of a sheet and their number."""
    problems = list(find_problems(document))
    if problems:
        rest = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        message = f"{where}: {problems[0]}{rest}"
        raise TargetError(message)


def find_problems(document: Table) -> Iterator[Problem]:
    """Yield every problem of a sheet; relations only if its fields are sound."""
    named = list(sheets.tier_name_problems(document)) if TIERS in document else []
    known = fields_with(() if named else _tiers(document))
    alone = [*_in_head(document), *_in_structure(document, known), *named]
    alone += _in_fields(document, known)
    if MODES in document:
        alone += sheets.mode_problems(document)
    yield from alone
    if not alone:
        fields = field_values(document)
        yield from find_contradictions(fields)
        yield from power_problems(fields)
        if any(map(_is_of_a_node, fields)):
            yield from sheets.host_problems(fields)
        yield from price_problems(fields)
        if TIERS in document:
            yield from sheets.tier_problems(fields)


def _is_of_a_node(name: str) -> bool:
    """Whether a field says what a node has, which few sheets do."""
    return name != "host.overheads" and name.startswith(_OF_A_NODE)


def memory_problems(document: Table) -> Iterator[Problem]:
    """Yield every problem of the sheet of a memory: one tier of its own name."""
    known = fields_of_tier(str(document.get("name")))
    alone = [*_in_head(document), *_in_structure(document, known)]
    alone += _in_fields(document, known)
    yield from alone or sheets.tier_problems(_values(document, known))


def memory_values(document: Table) -> tuple[dict[str, FieldValue], dict[str, str]]:
    """Return the values of a memory's sound sheet, and the citation of each."""
    values = _values(document, fields_of_tier(str(document["name"])))
    return values, citations(document, values)


def citations(document: Table, names: Iterable[str]) -> dict[str, str]:
    """Return the citation of each of the fields of a sound sheet."""
    cited = cast("Mapping[str, str]", document["sources"])
    return {
        name: cited[cast("Mapping[str, str]", find_entry(document, name))["source"]]
        for name in names
    }


def _tiers(document: Table) -> Table:
    return _table(document, TIERS)


def field_values(document: Table) -> dict[str, FieldValue]:
    """Return the values of a sound sheet by dotted name, in the order shown."""
    return _values(document, fields_with(_tiers(document)))


def _values(document: Table, known: Mapping[str, SheetField]) -> dict[str, FieldValue]:
    entries = ((name, find_entry(document, name)) for name in known)
    return {
        name: cast("FieldValue", cast("Table", entry)["value"])
        for name, entry in entries
        if entry is not None
    }


def _table(document: Table, section: str) -> Table:
    found: object = document
    for part in section.split("."):
        found = cast("Table", found).get(part) if isinstance(found, dict) else None
    return cast("Table", found) if isinstance(found, dict) else {}


def find_entry(document: Table, name: str) -> object:
    """Return the entry that a sheet holds in the place of a field, or None."""
    section, _, key = name.rpartition(".")
    return _table(document, section).get(key)


def _is_synchronous(document: Table) -> bool:
    entry = find_entry(document, LAUNCH)
    value = cast("Table", entry).get("value") if isinstance(entry, dict) else None
    return is_synchronous({LAUNCH: value})


def _in_head(document: Table) -> Iterator[Problem]:
    name = document.get("name")
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        found = "nothing" if name is None else shown(name)
        yield Problem("name", "a text", found, 'begin with name = "my-gpu"')
    aliases = document.get("aliases", [])
    listed = cast("list[object]", aliases) if isinstance(aliases, list) else [None]
    if not all(isinstance(alias, str) for alias in listed):
        yield Problem(
            "aliases", "a list of texts", shown(document["aliases"]), "or leave it out"
        )
    sources = document.get("sources")
    if not isinstance(sources, dict):
        yield Problem(
            "sources", "a table", "none", "add [sources], each an id and a citation"
        )
        return
    for key, citation in cast("Table", sources).items():
        if not (isinstance(citation, str) and citation.strip()):
            name = f"sources.{quoted(key)}"
            yield Problem(name, "a citation", shown(citation), "say where it is from")


def _in_structure(
    document: Table, fields: Mapping[str, SheetField]
) -> Iterator[Problem]:
    head = {"name", "aliases", "sources", TARGET, TIERS, MODES}
    known: dict[str, set[str]] = {"": head}
    sections = dict.fromkeys(field.section for field in fields.values())
    for section in sections:
        parent, _, key = section.rpartition(".")
        known.setdefault(parent, set()).add(key)
        known.setdefault(section, set()).update(
            field.key for field in fields.values() if field.section == section
        )
    for section, keys in known.items():
        table = _table(document, section) if section else document
        for key in table:
            if key not in keys:
                dotted = f"{section}.{quoted(key)}".lstrip(".")
                near = difflib.get_close_matches(key, keys, n=1)
                advice = f"did you mean {near[0]}?" if near else "remove it"
                expected = f"a field of [{section}]" if section else "a known section"
                yield Problem(dotted, expected, "an unknown field", advice)
    synchronous = _is_synchronous(document)
    for section in sections:
        parent, _, key = section.rpartition(".")
        holder = _table(document, parent) if parent else document
        if key in holder and not isinstance(holder[key], dict):
            advice = f"write it as a table, [{section}]"
            yield Problem(section, "a table", shown(holder[key]), advice)
        elif key not in holder and not is_optional_section(
            section, synchronous=synchronous
        ):
            yield Problem(section, "a table", "nothing", f"add [{section}]")


def _in_fields(document: Table, fields: Mapping[str, SheetField]) -> Iterator[Problem]:
    synchronous = _is_synchronous(document)
    sources = _table(document, "sources")
    for field in fields.values():
        holder = _table(document, field.section)
        entry = holder.get(field.key)
        wanted = holder or not is_optional_section(
            field.section, synchronous=synchronous
        )
        if entry is not None:
            yield from _in_entry(field, entry, sources)
        elif wanted and is_required(field, synchronous=synchronous):
            advice = (
                f"add {field.key} = {{ value = …, source = … }} to [{field.section}]"
            )
            unit = f" in {field.unit}" if field.unit else ""
            yield Problem(field.name, f"a value{unit}", "nothing", advice)


def _in_entry(field: SheetField, entry: object, sources: Table) -> Iterator[Problem]:
    form, name = '{ value = …, source = "…" }', field.name
    if not isinstance(entry, dict):
        yield Problem(name, form, shown(entry), "say where the value comes from")
        return
    table = cast("Table", entry)
    for key in table:
        if key not in {"value", "source"}:
            yield Problem(f"{name}.{quoted(key)}", form, "an unknown key", "remove it")
    if "value" not in table:
        yield Problem(name, form, "no value", "add the value")
    elif complaint := field.complaint(table["value"]):
        advice = "check the unit in the field's name and the maker's sheet"
        yield Problem(name, *complaint, advice)
    source = table.get("source")
    if source is None:
        yield Problem(name, form, "no source", "name an id of [sources]")
    elif not isinstance(source, str) or source not in sources:
        advice = "add the citation to [sources]"
        yield Problem(f"{name}.source", "an id of [sources]", shown(source), advice)
