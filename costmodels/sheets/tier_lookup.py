"""Tiers by name, as a placement asks for them: of a target, or of a shipped memory."""

from __future__ import annotations

import difflib
from typing import Any

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.machine import HostResources, Target, TargetError, Tier
from perfc.costmodels.sheets import tier_section
from perfc.costmodels.sheets.sheet_fields import FieldValue, fields_of_tier
from perfc.costmodels.sheets.sheet_lint import memory_problems, memory_values
from perfc.ir import UsageError

HBM, DRAM = "hbm", "dram"
"""Tiers that follow from the device and from the host."""

_CONSTANTS = constants("tiers")
_SECTOR_BYTES = _CONSTANTS.integer("sector_bytes")
_LINE_BYTES = _CONSTANTS.integer("line_bytes")


def known_tiers(target: Target) -> dict[str, Tier]:
    """Return the tiers that a target has itself, by name, fastest first."""
    found: dict[str, Tier] = {}
    if not target.device.synchronous:
        memory = target.device.memory
        found[HBM] = Tier(
            name=HBM,
            capacity_bytes=memory.usable_bytes,
            **_without_commands(_SECTOR_BYTES, memory.bytes_per_s),
            read_latency_s=_CONSTANTS.number("hbm_latency_s"),
        )
    if target.resources is not None:
        found[DRAM] = _dram(target.resources)
    return found | {tier.name: tier for tier in target.tiers}


def find_tier(target: Target, name: str, count: int = 1) -> Tier:
    """Return a tier by its name.

    Args:
        target: Whose tiers go before the memories that ship with perfc.
        name: `hbm`, `dram`, a tier of the target's sheet, a memory or its alias.
        count: So many times what the sheet has: drives or modules of a memory.

    """
    known = known_tiers(target)
    if name in known:
        return known[name].times(count)
    if name in {HBM, DRAM}:
        section = "[gpu] memory" if name == HBM else "[host]"
        msg = f"{target.name} has no tier {name}: its sheet has no {section}"
        raise UsageError(msg)
    if not tier_section.is_memory(name):
        memories = tier_section.memory_names()
        every = [*known, *memories, *tier_section.MEMORY_ALIASES]
        near = difflib.get_close_matches(name, every, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        msg = (
            f"unknown tier {name}; {hint}{target.name} has {', '.join(known) or 'none'}"
        )
        msg += f"; memories: {', '.join(memories)}"
        raise UsageError(msg)
    return load_memory(name).times(count)


def load_memory(name: str) -> Tier:
    """Return one drive or module of a memory that ships with perfc."""
    memory, values, cited = _checked(name)
    (found,) = tier_section.tiers_of(values, cited)
    return attrs.evolve(found, device=memory)


def describe_memory(name: str) -> list[tuple[str, FieldValue, str, str]]:
    """Return (field, value, unit, source) of a memory, as its sheet has them."""
    memory, values, cited = _checked(name)
    known = fields_of_tier(memory)
    return [(key, values[key], known[key].unit, cited[key]) for key in values]


def _checked(name: str) -> tuple[str, dict[str, FieldValue], dict[str, str]]:
    """Return a memory's name, its fields and the citation of each."""
    sheet = tier_section.memory_sheet(name)
    memory = str(sheet["name"])
    for problem in memory_problems(sheet):
        msg = f"memory {memory}: {problem}"
        raise TargetError(msg)
    return memory, *memory_values(sheet)


def _dram(resources: HostResources) -> Tier:
    return Tier(
        name=DRAM,
        capacity_bytes=resources.dram_bytes,
        **_without_commands(_LINE_BYTES, resources.dram_bytes_per_s),
        read_latency_s=_CONSTANTS.number("dram_latency_s"),
        usd_per_byte=_CONSTANTS.number("dram_usd_per_gb") * 1e-9,
        sources={"usd_per_gb": "assumed: a price of DIMMs (constants of tiers)"},
    )


def _without_commands(granularity: int, bytes_per_s: float) -> dict[str, Any]:
    """Return the fields of a memory that bandwidth alone limits."""
    return {
        "granularity_bytes": granularity,
        "bus_granularity_bytes": granularity,
        "reads_per_s": bytes_per_s / granularity,
        "writes_per_s": bytes_per_s / granularity,
        "read_bytes_per_s": bytes_per_s,
        "write_bytes_per_s": bytes_per_s,
    }
