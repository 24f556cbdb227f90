"""Tables that no kernel reads: behind a cache, on the host's cores, on servers.

A tier of memory (`tier_read`, `tier_write`): before a lookup the rows of its batch that
the cache in device memory lacks are read, and others written back, by the rules of
`tiers/training.py`; they cross the host link (`tier_fill`). With `host` the cores of
the node look up and update (`host_lookup`), and pooled rows cross (`pooled_copy`). With
`remote` parameter servers do (`server_lookup`), after a request (`server_request`), and
indices, pooled rows and their gradients go over the network (`server_transfer`).

Ranks of a node share its tiers, memory, ways and cores; trainers share the servers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

from perfc.costmodels import tiers
from perfc.costmodels.constants import constants
from perfc.costmodels.embedding.places import DRAM
from perfc.costmodels.kernels import OneSignature
from perfc.costmodels.locality import popularity_of, row_bytes_of, row_curve
from perfc.costmodels.machine import HostResources, Target, Tier
from perfc.costmodels.sheets import assumed_system, find_tier, load_target
from perfc.ir import OPTIMIZER_STATES, Kernel, PerfcError, Record

RPC_US = tiers.RPC_S * 1e6
"""Microseconds of a request to a server if nothing is said; assumed."""

_STATE_BYTES = 4
_FORWARD = "forward"


def ranks_together(target: Target, ranks: int) -> int:
    """Return how many of some ranks are on one node: that of the most.

    A CPU is a node by itself.
    """
    if ranks == 1 or target.device.synchronous:
        return 1
    return target.once(assumed_system).members(ranks)[1]


def far_seconds(one: OneSignature, target: Target) -> float:
    """Return how long one of `FAR_KERNELS` takes."""
    return max(_PRICES[one.op](one.kernel, target), _EMPTY_S)


def is_on_server(kernel: Kernel, target: Target) -> bool:
    """Whether a lookup, or the update of its rows, runs on a server that is known.

    Its cores share it, as they do that of ranks (`host_lookup`); the coefficients of
    other CPUs were read off two cores.
    """
    if target.resources is None or not target.device.synchronous:
        return False
    if kernel.op != "embedding_bag" or target.is_calibrated:
        return False
    return _is_forward(kernel) or bool(kernel.params.get("optimizer"))


def on_server_s(kernel: Kernel, target: Target) -> float:
    """Return how long all cores of a server look up, or update what they looked up."""
    return _CALL_S + _looked_up_s(kernel, required_host(target), 1)


_EMPTY_S = constants("tiers").number("empty_s")
_CALL_S = constants("cpu").table("group_bag")["start_us"] * 1e-6


def required_host(target: Target) -> HostResources:
    """Return the resources that the ranks of a node share."""
    if target.resources is None:
        msg = (
            f"{target.name}: nothing is known of its host, which looks tables up; name "
            "a target whose sheet has [host], as big-basin or zion"
        )
        raise PerfcError(msg)
    return target.resources


@functools.lru_cache(maxsize=16)
def server_target(name: str) -> Target:
    """Return the target of a parameter server."""
    server = load_target(name)
    required_host(server)
    nic_bytes_per_s(server, 1)
    return server


def nic_bytes_per_s(target: Target, together: int) -> float:
    """Return a rank's share of the adapters of its node, in one direction.

    Args:
        target: What the ranks run on.
        together: Ranks of a node.

    """
    fields = target.fields
    nics = float(fields.get("network.nics", 0))
    rate = float(fields.get("network.nic_gbit_per_s", 0)) * 1e9 / 8
    if not nics and not target.device.synchronous:
        system = target.once(assumed_system)
        nics, rate = float(system.nics_per_node), system.nic_bytes_per_s
    if not nics * rate:
        msg = (
            f"{target.name}: no network leads to servers; name a target whose sheet "
            "has [network], as big-basin or zion"
        )
        raise PerfcError(msg)
    return nics * rate / together


def beside_bytes(kernel: Kernel, table: Record) -> int:
    """Return the bytes of optimizer states beside each row of a table."""
    states = OPTIMIZER_STATES.get(str(kernel.params.get("optimizer") or ""), ())
    dim = table.integer("dim")
    return sum(_STATE_BYTES * (dim if state == "element" else 1) for state in states)


def _ranks(kernel: Kernel, target: Target) -> int:
    return ranks_together(target, kernel.params.integer("ranks", 1))


def _is_forward(kernel: Kernel) -> bool:
    return bool(kernel.params.get("phase", _FORWARD) == _FORWARD)


def _tables(kernel: Kernel) -> tuple[Record, ...]:
    return kernel.params.records("tables")


def _lookups(kernel: Kernel, table: Record) -> float:
    return float(kernel.params.integer("batch")) * float(str(table["pooling"]))


def _stored_bytes(kernel: Kernel, table: Record) -> int:
    return math.ceil(row_bytes_of(kernel, table)) + beside_bytes(kernel, table)


def _traffic(kernel: Kernel, table: Record, tier: Tier) -> tiers.TrainingTraffic:
    """Return the traffic of a lookup, or an update, between a tier and its cache."""
    rows = max(table.integer("rows"), 1)
    stored = tiers.TieredTable(
        name="",
        rows=rows,
        row_bytes=_stored_bytes(kernel, table),
        lookups=float(str(table["pooling"])),
        pooling=float(str(table["pooling"])),
        popularity=popularity_of(kernel, table),
    )
    held = math.floor(rows * float(str(table.get("cache", 0.0))))
    batch = float(kernel.params.integer("batch"))
    moves = tiers.lookup_traffic if _is_forward(kernel) else tiers.update_traffic
    return moves(stored, tier, batch, held)


def _tier_of(table: Record, target: Target) -> Tier:
    return find_tier(target, str(table["tier"]), int(str(table.get("count", 1))))


def _medium(kernel: Kernel, target: Target) -> float:
    """Return how long the tiers of some tables read, or write, for all ranks."""
    ranks, writes = _ranks(kernel, target), kernel.op == "tier_write"
    found: dict[Tier, list[tiers.TrainingTraffic]] = {}
    for table in _tables(kernel):
        tier = _tier_of(table, target)
        found.setdefault(tier, []).append(_traffic(kernel, table, tier))
    return max(
        _busy_s(tier, traffic, ranks, writes=writes) for tier, traffic in found.items()
    )


def _busy_s(
    tier: Tier, traffic: list[tiers.TrainingTraffic], ranks: int, *, writes: bool
) -> float:
    """Return how long a tier is busy; the first of its reads takes its latency."""
    if writes:
        traffic = [t.only_written for t in traffic]
    else:
        traffic = [t.only_read for t in traffic]
    seconds = ranks * tiers.training_time(tier, traffic).seconds
    if tier.name == DRAM:
        seconds /= tiers.RANDOM_SHARE
    waits = seconds > 0 and not writes
    return tier.read_latency_s + seconds if waits else seconds


def _filled(kernel: Kernel, target: Target) -> float:
    """Return how long rows take over the host link: those brought in, or written."""
    nbytes = 0.0
    out = kernel.params.text("kind") == "d2h"
    for table in _tables(kernel):
        moved = _traffic(kernel, table, _tier_of(table, target))
        rows = moved.rows_written if out else moved.rows_read
        nbytes += rows * _stored_bytes(kernel, table)
    return _crossing_s(kernel, target, nbytes, out=out)


def _pooled(kernel: Kernel, target: Target) -> float:
    nbytes = float(kernel.params.integer("bytes"))
    return _crossing_s(kernel, target, nbytes, out=kernel.params.text("kind") == "d2h")


def _crossing_s(kernel: Kernel, target: Target, nbytes: float, *, out: bool) -> float:
    """Return how long bytes take between the host's memory and a rank."""
    link = target.host_link
    rate = link.d2h_bytes_per_s if out else link.h2d_bytes_per_s
    if target.resources is None:
        return link.latency_s + nbytes / rate
    busy = tiers.host_ways(target.resources, rate, _ranks(kernel, target), nbytes)
    return link.latency_s + max(busy.values())


def _looked_up_s(kernel: Kernel, host: HostResources, ranks: int) -> float:
    """Return how long cores look up for some ranks, or update what they looked up.

    An update adds the gradients of the bags of all lookups up, which are in a
    processor's cache, then reads and writes each row once with its states.
    """
    seconds = 0.0
    for table in _tables(kernel):
        lookups, size = _lookups(kernel, table), row_bytes_of(kernel, table)
        if _is_forward(kernel):
            seconds += _pooling_s(host, ranks, lookups, size)
            continue
        rows = max(table.integer("rows"), 1)
        pooling = float(str(table["pooling"]))
        curve = row_curve(popularity_of(kernel, table), rows, pooling)
        stored = _stored_bytes(kernel, table)
        seconds += _pooling_s(host, ranks, lookups, size, cached_share=1.0)
        seconds += _pooling_s(host, ranks, 2 * curve.touched(lookups), stored)
    return seconds


def _pooling_s(
    host: HostResources,
    ranks: int,
    lookups: float,
    row_bytes: float,
    cached_share: float = 0.0,
) -> float:
    work = tiers.HostLookups(
        lookups=lookups,
        row_bytes=math.ceil(row_bytes),
        pooled_bytes=0.0,
        cached_share=cached_share,
    )
    return tiers.host_lookups(host, math.inf, ranks, work).pooling.seconds


def _on_host(kernel: Kernel, target: Target) -> float:
    return _looked_up_s(kernel, required_host(target), _ranks(kernel, target))


def _on_servers(kernel: Kernel, target: Target) -> float:
    trainers = kernel.params.integer("ranks", 1)
    (first, *_) = _tables(kernel)
    server = server_target(str(first["server"]))
    each = _looked_up_s(kernel, required_host(server), 1)
    return trainers / first.integer("servers") * each


def _sent(kernel: Kernel, target: Target) -> float:
    """Return how long bytes of all trainers take to the servers, or back."""
    params = kernel.params
    trainers, together = params.integer("ranks", 1), _ranks(kernel, target)
    cluster = tiers.Cluster(
        trainers=trainers,
        servers=params.integer("servers"),
        trainer_nic_bytes_per_s=nic_bytes_per_s(target, together),
        server_nic_bytes_per_s=nic_bytes_per_s(server_target(params.text("server")), 1),
    )
    nbytes = float(params.integer("bytes"))
    work = tiers.RemoteLookups(sent_bytes=nbytes, received_bytes=0.0, server_s=0.0)
    return tiers.remote_lookups(cluster, work).seconds


def _requested(kernel: Kernel, target: Target) -> float:
    return float(str(kernel.params["us"])) * 1e-6


_PRICES: Mapping[str, Callable[[Kernel, Target], float]] = {
    "tier_read": _medium,
    "tier_write": _medium,
    "tier_fill": _filled,
    "host_lookup": _on_host,
    "pooled_copy": _pooled,
    "server_lookup": _on_servers,
    "server_transfer": _sent,
    "server_request": _requested,
}
