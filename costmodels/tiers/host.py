"""Ranks that share a host: its memory, its uplinks, its sockets, its cores.

Where k ranks read rows of tables in the host's memory at the same time, each gets

    min(link, uplink / ranks on it, share * DRAM / k, sockets' links / (k * remote))

bytes a second: `share` of the nominal rate is what rows reach one by one, and of s
sockets (s - 1) / s of the rows are with another one. Ranks fill one uplink after the
other. Derived from who shares what; the shares are constants (`fitted/constants`).

Where cores look up and pool, only pooled rows cross: the cores of each socket read the
tables in its own memory.
"""

from __future__ import annotations

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.machine import HostResources
from perfc.costmodels.tiers.limits import Busy
from perfc.ir import PerfcError

_CONSTANTS = constants("tiers")

RANDOM_SHARE = _CONSTANTS.number("random_share")
"""Share of DRAM's nominal rate that rows reach, one by one."""

_LINE_BYTES = _CONSTANTS.integer("line_bytes")
_LINE_LOOKUP_S = _CONSTANTS.number("line_lookup_s")
_CACHED_LOOKUP_S = _CONSTANTS.number("cached_lookup_s")
_CORE_BYTES_PER_S = _CONSTANTS.number("core_bytes_per_s")


def row_reads(
    host: HostResources,
    link_bytes_per_s: float,
    ranks: int,
    nbytes: float,
    share: float = RANDOM_SHARE,
) -> Busy:
    """Return how long each of some ranks reads rows in the host's memory.

    Args:
        host: Of the node.
        link_bytes_per_s: What a rank's own link reaches, in one direction.
        ranks: That read at the same time.
        nbytes: That each of them reads.
        share: Of DRAM's nominal rate.

    """
    parts = {
        **host_ways(host, link_bytes_per_s, ranks, nbytes),
        "DRAM": ranks * nbytes / (share * host.dram_bytes_per_s),
    }
    return Busy(parts)


def host_ways(
    host: HostResources, link_bytes_per_s: float, ranks: int, nbytes: float
) -> dict[str, float]:
    """Return how long a rank's bytes take over each way between it and the memory.

    Args:
        host: Of the node.
        link_bytes_per_s: What a rank's own link reaches, in one direction.
        ranks: That use them at the same time, for as many bytes each.
        nbytes: Of each of them.

    """
    if ranks < 1:
        msg = f"{ranks} ranks on a host: expected at least 1"
        raise PerfcError(msg)
    sharing = min(ranks, host.ranks_per_uplink)
    far = ranks * host.remote_share * nbytes
    return {
        "link": nbytes / link_bytes_per_s,
        "uplink": sharing * nbytes / host.uplink_bytes_per_s,
        "sockets": far / host.inter_socket_bytes_per_s,
    }


@attrs.frozen(kw_only=True)
class HostLookups:
    """What the cores of a host do for one rank in a batch."""

    lookups: float
    """Rows that are read or updated; an update counts twice: it reads and writes."""
    row_bytes: int
    """Bytes of one row, with what lies beside it."""
    pooled_bytes: float
    """Bytes of pooled rows: batch times columns of all tables times bytes of each;
    in training also of their gradients, which come back."""
    cached_share: float = 0.0
    """Share of lookups whose row is in a processor's cache."""


@attrs.frozen
class HostTime:
    """Time of lookups by cores, one part after the other.

    Attributes:
        pooling: Cores and DRAM, which work at the same time.
        transfer: Pooled rows on their way to the rank.

    """

    pooling: Busy
    transfer: Busy

    @property
    def seconds(self) -> float:
        """Time of both, where nothing overlaps them."""
        return self.pooling.seconds + self.transfer.seconds


def lookup_s(row_bytes: int, cached_share: float = 0.0) -> float:
    """Return how long one core looks up and adds a row, in seconds.

    The first cache line of a row by FBGEMM's rows of one thread, the rest of it at the
    rate of a core.
    """
    first = cached_share * _CACHED_LOOKUP_S + (1 - cached_share) * _LINE_LOOKUP_S
    return first + max(row_bytes - _LINE_BYTES, 0) / _CORE_BYTES_PER_S


def host_lookups(
    host: HostResources,
    link_bytes_per_s: float,
    ranks: int,
    work: HostLookups,
    share: float = RANDOM_SHARE,
) -> HostTime:
    """Return how long a host looks up for each of some ranks at the same time.

    Args:
        host: Of the node.
        link_bytes_per_s: What a rank's own link reaches, in one direction.
        ranks: That ask at the same time, for as much each; 0 link time for a rank that
            is the host itself is `math.inf`.
        work: For one of them.
        share: Of DRAM's nominal rate.

    """
    transfer = host_ways(host, link_bytes_per_s, ranks, work.pooled_bytes)
    each = lookup_s(work.row_bytes, work.cached_share)
    read = work.lookups * (1 - work.cached_share) * work.row_bytes
    pooling = {
        "cores": ranks * work.lookups * each / host.cores,
        "DRAM": ranks * read / (share * host.dram_bytes_per_s),
    }
    return HostTime(Busy(pooling), Busy(transfer))
