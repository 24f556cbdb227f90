"""Tables on parameter servers: indices go over the network, pooled rows come back.

T trainers ask N servers. A step of a trainer sends indices and, in training, gradients,
and gets pooled rows; each direction of a NIC is its own. Servers are shared by all
trainers, and each holds the same part of the tables. By default a trainer does not wait
(asynchronous: it works on rows that it asked for before); with `sync` it does. Derived;
what a request costs is assumed.
"""

from __future__ import annotations

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.tiers.limits import Busy, Rates
from perfc.ir import PerfcError

RPC_S = constants("tiers").number("rpc_s")
"""Seconds of a request to a server and its answer, without its bytes."""


@attrs.frozen(kw_only=True)
class RemoteLookups:
    """What a step of one trainer asks of all servers together."""

    sent_bytes: float
    """Indices, and gradients of pooled rows."""
    received_bytes: float
    """Pooled rows."""
    server_s: float
    """Seconds of one server for all of it, if there were one."""
    rpc_s: float = RPC_S


@attrs.frozen(kw_only=True)
class Cluster:
    """Trainers, servers, and what joins them."""

    trainers: int
    servers: int
    trainer_nic_bytes_per_s: float
    """One direction, as is that of servers."""
    server_nic_bytes_per_s: float

    def __attrs_post_init__(self) -> None:
        if self.trainers < 1 or self.servers < 1:
            msg = (
                f"{self.trainers} trainers and {self.servers} servers: expected at "
                "least 1 of both"
            )
            raise PerfcError(msg)


def remote_lookups(cluster: Cluster, work: RemoteLookups) -> Busy:
    """Return how long each part of a cluster works on one step of every trainer."""
    wire = max(work.sent_bytes, work.received_bytes)
    each = cluster.trainers / cluster.servers
    return Busy(
        {
            "trainer NIC": wire / cluster.trainer_nic_bytes_per_s,
            "server NIC": each * wire / cluster.server_nic_bytes_per_s,
            "servers": each * work.server_s,
        }
    )


def remote_step_s(
    cluster: Cluster, work: RemoteLookups, trainer_s: float, *, sync: bool = False
) -> float:
    """Return the time of a trainer's step, in seconds.

    Args:
        cluster: Trainers and servers.
        work: Of the step.
        trainer_s: What the trainer itself works on it.
        sync: Whether it waits for its rows.

    """
    away = remote_lookups(cluster, work).seconds
    return trainer_s + work.rpc_s + away if sync else max(trainer_s, away)


def training_rate(
    cluster: Cluster, work: RemoteLookups, trainer_s: float, batch: float
) -> Rates:
    """Return the samples a second that each part of a cluster allows, asynchronously.

    Args:
        cluster: Trainers and servers.
        work: Of a step of one trainer.
        trainer_s: What a trainer works on a step.
        batch: Samples of a trainer's step.

    """
    away = remote_lookups(cluster, work).parts
    seconds = {"trainers": trainer_s, **away}
    samples = cluster.trainers * batch
    return Rates({name: samples / s for name, s in seconds.items() if s > 0})
