"""Sheets of systems: a target's sheet, and the nodes and the network around it.

    name = "dgx-a100"
    aliases = []
    target = "a100-sxm-80g"         the sheet of its GPUs, and of their host link
    [node]                          gpus, topology, host
    [network]                       fabric, nics, nic_gbit_per_s; none: one node
    [host] [power] [tiers.NAME]     what a node has besides; watts of it, not of a GPU
    [price] [carbon]                in place of those of its GPUs' sheet, of one GPU
    [sources]

Every field has a value and a source, as in sheets of targets (`sheet_fields.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.machine import (
    CUBE_MESH,
    MESH,
    NVSWITCH,
    PCIE,
    Device,
    Link,
    System,
    Target,
    TargetError,
)
from perfc.costmodels.sheets.catalog import find_sheet
from perfc.costmodels.sheets.sheet_fields import (
    COPIES,
    STAGED,
    TIERS,
    FieldValue,
    host_link_gb_per_s,
    quoted,
    shown,
)
from perfc.costmodels.sheets.sheet_lint import TARGET, Table, parse_sheet
from perfc.ir import PerfcError

Fields = Mapping[str, FieldValue]

_BESIDE = ("host", "power", TIERS)
_INSTEAD = ("price", "carbon")
_KEYS = ("name", "aliases", TARGET, "node", "network", *_BESIDE, *_INSTEAD, "sources")
_BYTES_PER_GBIT = 1e9 / 8

NODE_GPUS = 8
"""GPUs of a node that nobody has named: a board of SXM modules, a server of cards."""

_HOPPER = 9.0

_STAGED_SHARE = constants("collectives").number("staged_share")
"""Share of the bus's rate that is left to what goes through the host's memory."""


def with_target(document: Table, where: str) -> Table:
    """Return a system's sheet as one of a target that has a node and a network."""
    unknown = [key for key in document if key not in _KEYS]
    if unknown:
        message = (
            f"{where}: {quoted(unknown[0])}: expected one of {', '.join(_KEYS)}, found "
            "an unknown field; a system takes all else from its target"
        )
        raise TargetError(message)
    base = _target_sheet(document[TARGET], where)
    if "node" not in document:
        message = f"{where}: node: expected a table, found nothing; add [node]"
        raise TargetError(message)
    sources = _sources(base["sources"], document.get("sources"), where)
    # Kernels go by the name of the GPU's sheet: a system may call it by an alias.
    gpu = base.get("name", document[TARGET])
    both = {key: _beside(key, base, document, where) for key in _BESIDE}
    beside = {key: table for key, table in both.items() if table is not None}
    no_aliases: list[str] = []
    head = {**base, "aliases": no_aliases, **document, **beside}
    return {**head, TARGET: gpu, "sources": sources}


def _beside(key: str, base: Table, document: Table, where: str) -> object:
    """Return a section of a node: its GPU's fields, and those that the system adds."""
    if key not in base or not isinstance(document.get(key), dict):
        return document.get(key, base.get(key))
    if not isinstance(base[key], dict):
        return base[key]
    advice = "a field", "a system takes it from its target"
    of_gpu, of_node = (cast("Table", sheet[key]) for sheet in (base, document))
    return _joined(of_gpu, of_node, f"{where}: {key}", advice)


def _sources(of_target: object, of_system: object, where: str) -> object:
    """Return the citations of both; what is no table is left to the linter."""
    if not isinstance(of_target, dict) or not isinstance(of_system, dict):
        return of_system
    theirs, ours = cast("Table", of_target), cast("Table", of_system)
    return _joined(theirs, ours, f"{where}: sources", ("an id", "call it otherwise"))


def _joined(theirs: Table, ours: Table, where: str, advice: tuple[str, str]) -> Table:
    """Return a table of the target and one of the system, which share no key.

    Args:
        theirs: The target's.
        ours: The system's.
        where: What the table is, in messages.
        advice: What a key is, and what to do about one of both.

    """
    both = sorted(theirs.keys() & ours.keys())
    if both:
        kind, remedy = advice
        message = (
            f"{where}.{quoted(both[0])}: expected {kind} that the target's sheet has "
            f"not, found one of it; {remedy}"
        )
        raise TargetError(message)
    return {**theirs, **ours}


def _target_sheet(name: object, where: str) -> Table:
    if not isinstance(name, str):
        message = f"{where}: target: expected a target's name, found {shown(name)}"
        raise TargetError(message)
    try:
        base_where, content = find_sheet(name)
        base = parse_sheet(content, base_where) if isinstance(content, str) else content
    except PerfcError as error:
        message = f"{where}: target: {error}"
        raise TargetError(message) from error
    if "gpu" not in base or TARGET in base:
        message = (
            f"{where}: target: expected the sheet of a GPU, found {shown(name)}, which "
            "is none"
        )
        raise TargetError(message)
    return base


def system_of(name: str, fields: Fields, link: Link | None, gpu: Device) -> System:
    """Return the system that a sheet's fields describe.

    Args:
        name: Of the sheet.
        fields: In the sheet's units; with `node.gpus`.
        link: To other GPUs of the node; None where the host's PCIe leads there.
        gpu: What it has of.

    """
    topology = str(fields["node.topology"])
    if problem := _topology_problem(topology, int(fields["node.gpus"]), link, gpu):
        message = f"{name}: {problem}"
        raise TargetError(message)
    latency_us = fields.get("network.latency_us")
    nic_gbit_per_s = float(fields.get("network.nic_gbit_per_s", 0))
    way = _way(fields) if link is None or topology == PCIE else link
    return System(
        name=name,
        gpus_per_node=int(fields["node.gpus"]),
        topology=topology,
        link=way.name,
        link_bytes_per_s=way.bytes_per_s,
        fabric=str(fields.get("network.fabric", "")),
        nics_per_node=int(fields.get("network.nics", 0)),
        nic_bytes_per_s=nic_gbit_per_s * _BYTES_PER_GBIT,
        network_latency_s=None if latency_us is None else float(latency_us) * 1e-6,
        host=str(fields.get("node.host", "")),
        multicast=_has_multicast(topology, gpu),
    )


def _topology_problem(topology: str, gpus: int, link: Link | None, gpu: Device) -> str:
    if link is None and topology != PCIE:
        return (
            f"node.topology: expected {PCIE}, as {gpu.name} has no links to other "
            f"GPUs, found {topology}"
        )
    if topology == CUBE_MESH and gpus > NODE_GPUS:
        return f"node.gpus: expected at most {NODE_GPUS} in a {CUBE_MESH}, found {gpus}"
    return ""


def assumed_system(target: Target) -> System:
    """Return the node that a GPU without a system is taken to be in.

    `NODE_GPUS` of them, over the sheet's own link: NVSwitch, or the hybrid cube mesh of
    V100, or each to each over Infinity Fabric; over PCIe where the sheet has no link.
    """
    if target.system is not None:
        return target.system
    topology = usual_topology(target)
    fields = {**target.fields, "node.gpus": NODE_GPUS, "node.topology": topology}
    link = target.links[0] if target.links else None
    found = system_of(target.name, fields, link, target.device)
    return attrs.evolve(found, assumed=True)


def usual_topology(target: Target) -> str:
    """Return how a node of a GPU that is sold joins it to the others."""
    if not target.links:
        return PCIE
    if "nvlink.generation" not in target.fields:
        return MESH
    return CUBE_MESH if int(target.fields["nvlink.generation"]) <= 2 else NVSWITCH  # noqa: PLR2004 - of Volta


def _has_multicast(topology: str, gpu: Device) -> bool:
    """Whether it is NVSwitch 3 or later, with GPUs that know it."""
    if topology != NVSWITCH or not gpu.runs_cuda:
        return False
    return float(gpu.compute_capability) >= _HOPPER


def _way(fields: Fields) -> Link:
    """Return the way between GPUs over the host's PCIe, or through its memory.

    It carries what copies to the host reach, not what the bus has by name; a part of
    that where what is sent is written to the host's memory and read from there (NCCL,
    `src/transport/shm.cc`).
    """
    reached = (float(fields[name]) for name in COPIES if name in fields)
    rate = min(host_link_gb_per_s(fields), *reached) * 1e9
    generation = fields.get("host_link.pcie_generation")
    if generation is None:  # the GPU is the host's processor
        rate = float(fields["gpu.memory_gb_per_s"]) * 1e9
        return Link(name="memory", bytes_per_s=rate, sub_links=1)
    lanes = int(fields["host_link.pcie_lanes"])
    name = f"PCIe {int(generation)} x{lanes}"
    if fields.get("host_link.peers") == STAGED:
        name, rate = f"{name} through host memory", rate * _STAGED_SHARE
    return Link(name=name, bytes_per_s=rate, sub_links=lanes)
