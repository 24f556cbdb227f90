"""What a sheet says of watts and joules: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfc.costmodels.machine import MATH_MODES, Power
from perfc.costmodels.sheets.sheet_fields import POWER_CAP, FieldValue
from perfc.costmodels.sheets.sheet_physics import Problem
from perfc.ir import UsageError

_TOGETHER = (
    "gpu.least_clock_mhz",
    "power.burst_w",
    "power.idle_w",
    "power.busy_w",
    "power.pj_per_byte",
)
_OF_NODE = frozenset(
    {"power.node_w", "power.node_idle_w", "power.host_w", "power.host_idle_w"}
)
"""Fields of a node, not of a board: `host_section.py`."""
_PER_FLOP = "power.pj_per_flop"
_PJ = 1e-12


def power_of(fields: Mapping[str, FieldValue]) -> Power | None:
    """Return the power of a board; None where its sheet says too little."""
    if any(name not in fields for name in _TOGETHER):
        return None
    number = {name: float(fields[name]) for name in _TOGETHER}
    return Power(
        cap_watts=float(fields[_cap_field(fields)]),
        burst_watts=number["power.burst_w"],
        idle_watts=number["power.idle_w"],
        busy_watts=number["power.busy_w"],
        joules_per_byte=number["power.pj_per_byte"] * _PJ,
        joules_per_flop={
            mode: float(fields[f"{_PER_FLOP}.{mode}"]) * _PJ
            for mode in MATH_MODES
            if f"{_PER_FLOP}.{mode}" in fields
        },
        least_share=number["gpu.least_clock_mhz"] / float(fields["gpu.sm_clock_mhz"]),
    )


def power_problems(fields: Mapping[str, FieldValue]) -> Iterator[Problem]:
    """Yield a line for each power field that is missing or cannot be."""
    begun = [name for name in fields if name.startswith("power.")]
    begun = [name for name in begun if name != "power.tdp_w" and name not in _OF_NODE]
    missing = [name for name in _TOGETHER if name not in fields]
    if begun and missing:
        advice = f"add it, or leave {begun[0]} out"
        yield Problem(missing[0], f"a value beside {begun[0]}", "nothing", advice)
    low = _too_low(fields)
    if low is not None:
        yield Problem(*low, "the board draws power.idle_w without work")


def check_cap(fields: Mapping[str, FieldValue]) -> None:
    """Refuse a cap that a board without work is above."""
    low = _too_low(fields)
    if low is not None:
        name, expected, found = low
        msg = (
            f"--set {name}: expected {expected}, which the board draws without work, "
            f"found {found}"
        )
        raise UsageError(msg)


def _too_low(fields: Mapping[str, FieldValue]) -> tuple[str, str, str] | None:
    name = _cap_field(fields)
    idle = fields.get("power.idle_w")
    if idle is None or name not in fields or float(fields[name]) > float(idle):
        return None
    return name, f"more than power.idle_w = {idle:g} W", f"{fields[name]:g}"


def _cap_field(fields: Mapping[str, FieldValue]) -> str:
    return POWER_CAP if POWER_CAP in fields else "power.tdp_w"
