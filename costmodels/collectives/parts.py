"""How NCCL cuts what goes from GPU to GPU into parts, one a channel.

A channel (`src/enqueue.cc`, addP2pToPlan) goes by LL up to 16 KB
(`NCCL_P2P_LL_THRESHOLD`): up to NCCL 2.28 all channels that lead to a peer do, so up to
512 KB over a switch; later those that Simple would take, which is up to 16 KB.
"""

from __future__ import annotations

import re

import numpy as np

from perfc.costmodels.collectives.sizes import Collectives
from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Floats

_MOST_LL = 16384
"""Bytes of a channel."""

_LL_PART, _SIMPLE_PART = 2**13, 2**16
"""Least bytes of a part: an eighth of a step of LL's buffer, and of the chunk that
Simple sends over NVLink (`NCCL_P2P_NVL_CHUNKSIZE`)."""

SIMPLE_CHUNK = 2**19
"""Bytes."""

_MOST_PART = 32 * SIMPLE_CHUNK
"""Most bytes of a part; of more another channel takes half, if one leads there."""

CHANNEL_BYTES_PER_S = constants("collectives").number("channel_bytes_per_s")
"""Rate of links for each of NCCL's channels."""

NETWORK_CHANNEL_BYTES_PER_S = constants("collectives").number(
    "network_channel_bytes_per_s"
)
"""What NCCL takes a channel to send over a network."""

LEAST_CHANNELS, MOST_CHANNELS = 2, 32
"""Two for each link to a peer, as a power of two (`src/graph/paths.cc`,
ncclTopoComputeP2pChannels)."""


_NUMBER = re.compile(r"nccl[ -]?v?(\d+)\.(\d+)", re.IGNORECASE)
_LAST_BY_CHANNEL = 2, 28
"""The last NCCL whose exchanges leave LL by what a channel sends."""


def exchanges_by_peer(software: str) -> bool:
    """Whether an NCCL that a text names leaves LL by a peer's bytes, not a channel's.

    Where no number is named it is taken for an earlier one.
    """
    found = _NUMBER.search(software)
    return found is not None and (int(found[1]), int(found[2])) > _LAST_BY_CHANNEL


def peer_bytes(c: Collectives) -> Floats:
    """Return the bytes that one GPU sends another in an exchange, shape (rows,)."""
    found: Floats = np.where(c.op == "send_recv", c.bytes, c.bytes / c.ranks)
    return found


def peer_channels(pair_bytes_per_s: Floats) -> Floats:
    """Return how many channels lead to a peer over links of a rate, shape (rows,)."""
    wanted = np.maximum(pair_bytes_per_s / CHANNEL_BYTES_PER_S, 1.0)
    doubled = np.exp2(np.ceil(np.log2(wanted)))
    return np.clip(doubled, LEAST_CHANNELS, MOST_CHANNELS)


def most_by_ll(channels: Floats, *, by_peer: bool) -> Floats:
    """Return how many bytes go from GPU to GPU by LL at most, shape (rows,)."""
    return np.full(len(channels), _MOST_LL) * (1.0 if by_peer else channels)


def ll_part(c: Collectives, channels: Floats, *, by_peer: bool) -> Floats:
    """Return how many bytes to a peer go by each channel by LL, shape (rows,)."""
    return peer_bytes(c) if by_peer else _part(c, channels, _LL_PART)


def simple_part(c: Collectives, channels: Floats) -> Floats:
    """Return how many bytes to a peer go by each channel by Simple, shape (rows,)."""
    return _part(c, channels, _SIMPLE_PART)


def _part(c: Collectives, channels: Floats, least: int) -> Floats:
    """Return the bytes that a channel sends to a peer, in parts of *least* or more.

    A peer gets all its channels only if all peers together need no more than there are.
    """
    sent = peer_bytes(c)
    found: Floats = sent / np.clip(sent / least, 1.0, _own_channels(c, channels))
    return found


def longest_part(c: Collectives, channels: Floats) -> Floats:
    """Return how many bytes one channel sends to a peer by Simple, shape (rows,).

    More bytes in all have no shorter parts, though NCCL halves them at its limit.
    """
    sent = peer_bytes(c)
    few = np.minimum(sent / _own_channels(c, channels), _MOST_PART)
    found: Floats = np.maximum(few, sent / channels)
    return found


def network_channels(c: Collectives, nic_bytes_per_s: Floats) -> Floats:
    """Return how many channels lead to a peer on another node, shape (rows,)."""
    wanted = np.maximum(nic_bytes_per_s / NETWORK_CHANNEL_BYTES_PER_S, 1.0)
    return _own_channels(c, np.exp2(np.ceil(np.log2(wanted))))


def _own_channels(c: Collectives, channels: Floats) -> Floats:
    """Return how many of a peer's channels are its own, as all peers share them."""
    shared = np.exp2(np.floor(np.log2(np.maximum(MOST_CHANNELS / c.ranks, 1.0))))
    found: Floats = np.minimum(shared, channels)
    return found
