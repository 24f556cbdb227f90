"""The section `host` of a sheet, and the watts of a node: checked, and as values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from perfc.costmodels.machine import HostResources, NodePower
from perfc.costmodels.sheets.sheet_fields import FieldValue, is_synchronous
from perfc.costmodels.sheets.sheet_physics import Problem

_TOGETHER = (
    "host.sockets",
    "host.cores_per_socket",
    "host.dram_gb",
    "host.dram_gb_per_s",
)
_LINKS = "host.inter_socket_gb_per_s"
_UPLINK = ("host.gpus_per_uplink", "host.uplink_gb_per_s")
_NODE_WATTS = ("power.node_w", "power.host_w")

Fields = Mapping[str, FieldValue]


def host_resources(fields: Fields) -> HostResources | None:
    """Return the resources of a host; None where its sheet does not say them."""
    if any(name not in fields for name in _TOGETHER):
        return None
    sockets, cores, dram_gb, dram_gb_per_s = (float(fields[n]) for n in _TOGETHER)
    return HostResources(
        sockets=int(sockets),
        cores_per_socket=int(cores),
        dram_bytes=dram_gb * 1e9,
        dram_bytes_per_s=dram_gb_per_s * 1e9,
        inter_socket_bytes_per_s=float(fields.get(_LINKS, math.inf)) * 1e9,
        ranks_per_uplink=int(fields.get(_UPLINK[0], 1)),
        uplink_bytes_per_s=float(fields.get(_UPLINK[1], math.inf)) * 1e9,
        cpu=str(fields.get("host.cpu", "")),
    )


def node_power(fields: Fields) -> NodePower | None:
    """Return the watts of a node; None where its sheet says none of them."""
    if not any(name in fields for name in _NODE_WATTS):
        return None
    accelerators = 0 if is_synchronous(fields) else int(fields.get("node.gpus", 1))
    return NodePower(
        accelerators=accelerators,
        accelerator_watts=float(fields["power.tdp_w"]),
        accelerator_idle_watts=_watts(fields, "power.idle_w"),
        node_watts=_watts(fields, "power.node_w"),
        node_idle_watts=_watts(fields, "power.node_idle_w"),
        host_watts=_watts(fields, "power.host_w"),
        host_idle_watts=_watts(fields, "power.host_idle_w"),
    )


def _watts(fields: Fields, name: str) -> float | None:
    return float(fields[name]) if name in fields else None


def host_problems(fields: Fields) -> Iterator[Problem]:
    """Yield a line for what is missing beside other fields, or cannot be with them."""
    begun = [n for n in (*_TOGETHER, _LINKS, *_UPLINK, "host.cpu") if n in fields]
    for name in _TOGETHER if begun else ():
        if name not in fields:
            yield _missing(name, begun[0])
    if float(fields.get("host.sockets", 1)) > 1 and _LINKS not in fields:
        yield _missing(_LINKS, f"host.sockets = {fields['host.sockets']}")
    for one, other in (_UPLINK, _UPLINK[::-1]):
        if one in fields and other not in fields:
            yield _missing(other, one)
    yield from _core_problems(fields)
    for name in _NODE_WATTS:
        idle = name.replace("_w", "_idle_w")
        if idle in fields and float(fields[idle]) > float(fields.get(name, math.inf)):
            expected = f"at most {name} = {fields[name]:g} W"
            yield Problem(idle, expected, f"{fields[idle]:g}", "check both")


def _core_problems(fields: Fields) -> Iterator[Problem]:
    """Yield a line where a CPU that is its own device has other cores than its host."""
    if not is_synchronous(fields) or any(n not in fields for n in _TOGETHER):
        return
    cores = int(fields["host.sockets"]) * int(fields["host.cores_per_socket"])
    if cores != int(fields["gpu.sm_count"]):
        expected = f"{cores} (host.sockets x host.cores_per_socket)"
        advice = "count the cores of all sockets"
        yield Problem("gpu.sm_count", expected, f"{fields['gpu.sm_count']}", advice)


def _missing(name: str, beside: str) -> Problem:
    return Problem(name, f"a value beside {beside}", "nothing", "add it")
