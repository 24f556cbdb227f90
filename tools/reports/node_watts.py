"""Watts of the nodes, drives and servers of a step, as their sheets say them."""

from __future__ import annotations

import math

from perfc.costmodels import Target
from perfc.costmodels.embedding import HOST, REMOTE, server_target
from perfc.costmodels.machine import NodePower
from perfc.costmodels.sheets import find_tier
from perfc.ir import PerfcError, Record
from perfc.passes.graphs import placed_lookups
from perfc.tools.reports.results import Results


def node_watts(results: Results, target: Target) -> float | None:
    """Return the watts of all that works on a step; None where no sheet says them.

    A rank draws its accelerator and its share of the host: one rank on a node of eight
    draws an eighth of it, and as much of its drives where tables lie on them. Trainers
    share the servers.
    """
    ranks = sum(len(rank.ranks) for rank in results.program.classes)
    node = _active_watts(target.node_power, target.name)
    if node is None:
        return None
    share = ranks if target.system is None else ranks / target.system.gpus_per_node
    watts = [node * share]
    servers: dict[str, float] = {}
    drives: dict[tuple[str, int], float] = {}
    for table in _placed_tables(results):
        tier = str(table["tier"])
        if tier == REMOTE:
            name, trainers = (
                str(table["server"]),
                int(str(table.get("trainers") or ranks)),
            )
            own = table.integer("servers") * ranks / trainers
            servers[name] = max(servers.get(name, 0.0), own)
        elif "cache" in table and not tier.startswith("uvm"):
            key = tier, int(str(table.get("count", 1)))
            found = find_tier(target, *key).read_watts
            drives[key] = (found or 0.0) * share
    for name, count in servers.items():
        server = _active_watts(server_target(name).node_power, name)
        if server is None:
            return None
        watts.append(count * server)
    return math.fsum([*watts, *drives.values()])


def _active_watts(power: NodePower | None, name: str) -> float | None:
    if power is None:
        return None
    try:
        return power.active(name)
    except PerfcError:  # the sheet has a part of what that needs
        return None


def _placed_tables(results: Results) -> list[Record]:
    return [
        table
        for rank in results.program.classes
        if rank.ops is not None
        for node in placed_lookups(rank.ops)
        for table in node.attributes.records("tables")
        if table.get("tier") not in (None, "", HOST)
    ]
