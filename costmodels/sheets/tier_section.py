"""The tiers of a sheet, and the sheets of memories that ship with perfc.

    [tiers.optane]
    device = { value = "optane-p4800x", source = "label" }
    count = { value = 2, source = "label" }

`device` names a memory's sheet (`costmodels/memories`), which has a name, aliases, one
table `[tiers.NAME]` and `[sources]`; what the tier says itself goes before it.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import cast

from perfc.costmodels.machine import TargetError, Tier
from perfc.costmodels.sheets.sheet_fields import TIERS, FieldValue, tiers_in
from perfc.costmodels.sheets.sheet_file import read_sheet
from perfc.costmodels.sheets.sheet_physics import Problem
from perfc.ir import UsageError
from perfc.ir.support import parse_toml

Table = Mapping[str, object]
Fields = Mapping[str, FieldValue]

_FOLDER = Path(__file__).parents[1] / "memories"

MEMORY_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "cxl": "cxl-ddr5",
        "ddr4": "ddr4-2666-32g",
        "ddr5": "ddr5-4800-64g",
        "nand": "p3700-800g",
        "optane": "optane-p4800x",
    }
)
"""The `aliases` of the memories' sheets."""

RESERVED = ("dram", "hbm", "host", "remote", "uvm", "uvm-caching")
"""Places of tables that no sheet describes as a tier: they follow from the device and
the host."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_BANDWIDTH_SLACK = 1.05
"""How far rounding may make IOPS exceed a bandwidth."""


def memory_names() -> list[str]:
    """Return the names of the memories that ship with perfc, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def is_memory(name: str) -> bool:
    """Whether a memory, or an alias of one, is called so."""
    return MEMORY_ALIASES.get(name, name) in memory_names()


@functools.cache
def memory_sheet(name: str) -> Table:
    """Return the tables of a memory's sheet.

    Args:
        name: Of the memory, or an alias.

    """
    name = MEMORY_ALIASES.get(name, name)
    known = memory_names()
    if name not in known:
        near = difflib.get_close_matches(name, [*known, *MEMORY_ALIASES], n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        msg = f"unknown memory {name}; {hint}known memories: {', '.join(known)}"
        raise UsageError(msg)
    path = _FOLDER / f"{name}.toml"
    where = f"memory {name}"
    return parse_toml(
        read_sheet(path, "memory's sheet", TargetError), TargetError, where
    )


def with_devices(document: Table, where: str) -> Table:
    """Return a sheet whose tiers have the fields of the devices that they name."""
    tiers = document.get(TIERS)
    if not isinstance(tiers, dict):
        return document
    sources = document.get("sources")
    cited = dict(cast("Table", sources)) if isinstance(sources, dict) else {}
    whole: dict[str, object] = {}
    for name, table in cast("Table", tiers).items():
        entry = cast("Table", table).get("device") if isinstance(table, dict) else None
        value = cast("Table", entry).get("value") if isinstance(entry, dict) else None
        device = value if isinstance(value, str) else None
        whole[name] = table
        if device is None:
            continue
        try:
            sheet = memory_sheet(device)
        except UsageError as error:
            msg = f"{where}: {TIERS}.{name}.device: {error}"
            raise TargetError(msg) from error
        memory = str(sheet["name"])
        given = cast("Mapping[str, str]", sheet["sources"])
        cited |= {f"{memory}.{key}": text for key, text in given.items()}
        whole[name] = {**_fields_of(sheet), **cast("Table", table)}
    if whole == tiers:
        return document
    return {**document, TIERS: whole, "sources": cited}


def _fields_of(sheet: Table) -> Table:
    """Return the fields of a memory's sheet, citing by the memory's name."""
    memory = str(sheet["name"])
    table = cast("Mapping[str, Table]", cast("Table", sheet[TIERS])[memory])
    return {
        key: {"value": entry["value"], "source": f"{memory}.{entry['source']}"}
        for key, entry in table.items()
    }


def tier_name_problems(document: Table) -> Iterator[Problem]:
    """Yield a line for tiers that are no tables, or have names that cannot be."""
    tiers = document.get(TIERS, {})
    if not isinstance(tiers, dict):
        yield Problem(TIERS, "a table", type(tiers).__name__, f"write [{TIERS}.NAME]")
        return
    for name in cast("Table", tiers):
        if name in RESERVED:
            advice = "it follows from the device and the host: set [gpu] or [host]"
            yield Problem(f"{TIERS}.{name}", "another name", name, advice)
        elif not is_tier_name(name):
            expected = "a name of small letters, digits, - and _"
            yield Problem(TIERS, expected, repr(name)[:40], "rename the tier")


def is_tier_name(name: str) -> bool:
    """Whether a tier can be called so."""
    return _NAME.fullmatch(name) is not None and name not in RESERVED


def tier_problems(fields: Fields) -> Iterator[Problem]:
    """Yield a line for each field of a tier that contradicts another."""
    cached = 0.0
    for name in tiers_in(fields):
        yield from _problems_of(fields, f"{TIERS}.{name}.")
        cached += float(fields.get(f"{TIERS}.{name}.cache_gb", 0))
    if not cached:
        return
    first = next(k for k in fields if k.endswith(".cache_gb") and fields[k])
    dram = fields.get("host.dram_gb")
    if dram is None:
        advice = "add [host] with the memory that the cache is in"
        yield Problem(first, "a cache in host.dram_gb", "no such memory", advice)
    elif cached > float(dram):
        expected = f"caches of at most host.dram_gb = {dram:g} GB"
        yield Problem(first, expected, f"{cached:g} GB", "caches are in DRAM")


def _problems_of(fields: Fields, at: str) -> Iterator[Problem]:
    """Yield the problems of the tier whose fields begin with *at*."""
    have = {key.removeprefix(at): v for key, v in fields.items() if key.startswith(at)}
    number = {key: float(v) for key, v in have.items() if not isinstance(v, str)}
    medium = number["granularity_b"]
    bus = number.get("bus_granularity_b", medium)
    if medium % bus:
        expected = f"a divisor of granularity_b = {medium:g} B"
        yield Problem(f"{at}bus_granularity_b", expected, f"{bus:g}", "check both")
    if ("knee" in number) != ("read_iops" in number):
        missing, given = sorted(("knee", "read_iops"), key=number.__contains__)
        advice = "a drive has both, memory neither"
        yield Problem(f"{at}{missing}", f"a value beside {given}", "nothing", advice)
    for what in ("read", "write"):
        rate = number.get(f"{what}_gb_per_s", math.inf) * 1e9
        if number.get(f"{what}_iops", 0) * medium > _BANDWIDTH_SLACK * rate:
            expected = f"at most {rate / medium:.0f} ({what}_gb_per_s / granularity_b)"
            found = f"{number[f'{what}_iops']:g}"
            yield Problem(f"{at}{what}_iops", expected, found, "check both and units")
    for low, high in (
        ("read_latency_us", "read_latency_p99_us"),
        ("power_idle_w", "power_read_w"),
    ):
        if number.get(low, 0) > number.get(high, math.inf):
            expected = f"at least {low} = {number[low]:g}"
            yield Problem(f"{at}{high}", expected, f"{number[high]:g}", "check both")


def check_tier_names(names: Iterable[str]) -> None:
    """Refuse to set fields of tiers that no sheet has.

    Args:
        names: Dotted names of fields.

    """
    for tier in tiers_in(names):
        for problem in tier_name_problems({TIERS: {tier: {}}}):
            msg = f"--set {problem}"
            raise UsageError(msg)


def check_tiers(fields: Fields) -> None:
    """Refuse tiers that fields set by hand make impossible."""
    for problem in tier_problems(fields):
        msg = f"--set {problem}"
        raise UsageError(msg)


def tiers_of(fields: Fields, sources: Mapping[str, str]) -> tuple[Tier, ...]:
    """Return the tiers of a sheet, fastest first.

    Args:
        fields: In the sheet's units.
        sources: Citation by field.

    """
    found = (_tier(fields, sources, name) for name in tiers_in(fields))
    return tuple(sorted(found, key=lambda t: (t.read_latency_s, -t.read_bytes_per_s)))


def _tier(fields: Fields, sources: Mapping[str, str], name: str) -> Tier:
    at = f"{TIERS}.{name}."

    def number(key: str, unit: float = 1.0) -> float | None:
        value = fields.get(at + key)
        return None if value is None else float(value) * unit

    def each(key: str, unit: float = 1.0) -> float | None:
        """Return a number of one drive for all of them."""
        value = number(key, unit)
        return None if value is None else value * count

    count = int(fields.get(f"{at}count", 1))
    granularity = int(fields[f"{at}granularity_b"])
    read = float(fields[f"{at}read_gb_per_s"]) * 1e9 * count
    write = each("write_gb_per_s", 1e9) or read
    return Tier(
        name=name,
        device=str(fields.get(f"{at}device", "")),
        count=count,
        capacity_bytes=float(fields[f"{at}capacity_gb"]) * 1e9 * count,
        granularity_bytes=granularity,
        bus_granularity_bytes=int(fields.get(f"{at}bus_granularity_b", granularity)),
        reads_per_s=each("read_iops") or read / granularity,
        writes_per_s=each("write_iops") or write / granularity,
        read_latency_s=float(fields[f"{at}read_latency_us"]) * 1e-6,
        read_latency_p99_s=number("read_latency_p99_us", 1e-6),
        read_bytes_per_s=read,
        write_bytes_per_s=write,
        knee=number("knee") or math.inf,
        cache_bytes=number("cache_gb", 1e9) or 0.0,
        read_watts=each("power_read_w"),
        idle_watts=each("power_idle_w"),
        writes_per_day=number("dwpd"),
        usd_per_byte=number("usd_per_gb", 1e-9),
        sources={
            key.removeprefix(at): text
            for key, text in sources.items()
            if key.startswith(at)
        },
    )
