"""Power modes of a board: clocks and watts that its driver sets under one name.

A sheet has them as `[modes.NAME]`; `--set power.mode=NAME` takes one. Without, a board
runs as its other fields say, which is without a limit.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import cast

from perfc.costmodels.sheets.sheet_fields import (
    FIELDS,
    MODE,
    MODES,
    FieldValue,
    quoted,
    shown,
)
from perfc.costmodels.sheets.sheet_physics import Problem
from perfc.ir import UsageError

Table = Mapping[str, object]

FIELDS_OF_MODE: Mapping[str, str] = {
    "sm_clock_mhz": "gpu.sm_clock_mhz",
    "memory_gb_per_s": "gpu.memory_gb_per_s",
    "sm_count": "gpu.sm_count",
    "tdp_w": "power.tdp_w",
    "host_speed": "host.speed",
}
"""What a mode may set, and the field of the target that it is."""


def mode_problems(document: Table) -> Iterator[Problem]:
    """Yield a line for each field of a mode that is unknown or cannot be."""
    modes = _table(document.get(MODES))
    if modes is None:
        found = shown(document.get(MODES))
        yield Problem(MODES, "tables", found, "write [modes.NAME]")
        return
    sources = _table(document.get("sources")) or {}
    for name, entries in modes.items():
        where, mode = f"{MODES}.{quoted(name)}", _table(entries)
        if not mode:
            yield Problem(where, "a table", shown(entries), f"write [{where}]")
            continue
        for key, entry in mode.items():
            yield from _entry_problems(f"{where}.{quoted(key)}", key, entry, sources)


def _table(value: object) -> Table | None:
    return cast("Table", value) if isinstance(value, dict) else None


def _entry_problems(
    name: str, key: str, entry: object, sources: Table
) -> Iterator[Problem]:
    if key not in FIELDS_OF_MODE:
        near = difflib.get_close_matches(key, FIELDS_OF_MODE, n=1)
        advice = f"did you mean {near[0]}?" if near else "remove it"
        yield Problem(name, "a field of a power mode", "an unknown field", advice)
        return
    form, table = '{ value = …, source = "…" }', _table(entry)
    if table is None or set(table) != {"value", "source"}:
        yield Problem(name, form, shown(entry), "say where the value comes from")
        return
    if complaint := FIELDS[FIELDS_OF_MODE[key]].complaint(table["value"]):
        yield Problem(name, *complaint, "check the unit in the field's name")
    if table["source"] not in sources:
        found, advice = shown(table["source"]), "add the citation to [sources]"
        yield Problem(f"{name}.source", "an id of [sources]", found, advice)


def with_mode(document: Table, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Return overrides with the fields of the power mode that they name, in its place.

    A field that is set by itself wins.
    """
    wanted, board = overrides[MODE], str(document["name"])
    modes = cast("Mapping[str, Mapping[str, Table]]", document.get(MODES, {}))
    if wanted not in modes:
        has = f"it has {', '.join(modes)}" if modes else "it has no power modes"
        msg = f"--set {MODE}={wanted}: no power mode of {board}; {has}"
        raise UsageError(msg)
    of_mode = {
        FIELDS_OF_MODE[key]: str(entry["value"]) for key, entry in modes[wanted].items()
    }
    rest = {name: text for name, text in overrides.items() if name != MODE}
    return {**of_mode, **rest}


def described_modes(
    document: Table,
) -> Iterator[tuple[str, FieldValue, str, str]]:
    """Yield (field, value, unit, citation) of each mode of a sound sheet."""
    sources = cast("Mapping[str, str]", document["sources"])
    modes = cast("Mapping[str, Mapping[str, Table]]", document.get(MODES, {}))
    for name, mode in modes.items():
        for key, entry in mode.items():
            unit = FIELDS[FIELDS_OF_MODE[key]].unit
            value = cast("FieldValue", entry["value"])
            yield f"{MODES}.{name}.{key}", value, unit, sources[str(entry["source"])]
