"""What of a machine a collective takes from others while it runs.

NCCL's kernel has one block a channel, and each holds an SM of its own: two channels for
each link of 25 GB/s that a ring goes over, 2 to 32 (NCCL's `MAXCHANNELS`; in traces of
four V100 that share four links each it has 8 blocks). What it sends takes links, NICs,
and device memory, where it is read, and written by who receives it; a sum is read once
more.
"""

from __future__ import annotations

import attrs
import numpy as np

from perfc.costmodels.collectives import parts
from perfc.costmodels.collectives.collective import collective_links
from perfc.costmodels.collectives.links import Links
from perfc.costmodels.collectives.sizes import Collectives
from perfc.costmodels.collectives.time import network_rate, node_rate
from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Flags, Floats, KernelTable
from perfc.costmodels.machine import Target

SUMS_BESIDE = constants("collectives").number("sums_beside")
"""How many times as long all-reduces take beside GEMMs. Exchanges take as long
beside kernels as alone."""

_PASSES, _SUM_PASSES = 2, 3
"""Passes of the bytes over device memory: read, written; of a sum read once more."""


@attrs.frozen(eq=False)
class CollectiveShares:
    """Shares, 0 to 1, of what there is: columns, shape (rows,)."""

    held: Floats
    """Share of a GPU's SMs, which its blocks do not give back."""
    link: Floats
    """Share of a GPU's links in a node."""
    network: Floats
    """Share of the NICs."""
    memory: Floats
    """Share of the rate of device memory."""
    sums: Flags
    """Whether it adds up, in blocks that share their SM's time."""


def collective_shares(
    kernels: KernelTable, seconds: Floats, target: Target
) -> CollectiveShares:
    """Return the shares of collectives, each alone for *seconds*, shape (rows,)."""
    c = Collectives.of(kernels)
    links = collective_links(target, several=bool((c.nodes > 1).any()))
    device, across = target.device, c.nodes > 1
    passes = np.where(c.reduces, _SUM_PASSES, _PASSES)
    return CollectiveShares(
        held=channels(c, links) / device.sm_count,
        link=_share(
            np.where(c.per_node > 1, c.wire, 0.0), node_rate(c, links), seconds
        ),
        network=np.where(across, _share(c.wire, network_rate(c, links), seconds), 0.0),
        memory=_share(passes * c.wire, device.memory.bytes_per_s, seconds),
        sums=c.reduces,
    )


def channels(c: Collectives, links: Links) -> Floats:
    """Return how many blocks NCCL's kernel has, shape (rows,)."""
    wanted = np.rint(node_rate(c, links) / parts.CHANNEL_BYTES_PER_S)
    found: Floats = np.clip(wanted, parts.LEAST_CHANNELS, parts.MOST_CHANNELS)
    return found


def _share(moved: Floats, bytes_per_s: Floats | float, seconds: Floats) -> Floats:
    """Return how much of a rate is taken; all of it at most."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = moved / (bytes_per_s * seconds)
    return np.clip(np.nan_to_num(found, nan=0.0, posinf=1.0), 0.0, 1.0)
