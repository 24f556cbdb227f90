"""What collectives see of a system: rates, latencies, and factors on them."""

from __future__ import annotations

import attrs

from perfc.costmodels.constants import constants
from perfc.costmodels.machine import System, Target

_CONSTANTS = constants("collectives")

LL128_GB_PER_S = _CONSTANTS.numbers("ll128_gb_per_s")
"""Rate in GB/s of an LL128 channel: up to Ampere and Ada, on Hopper, on Blackwell."""

LINK_SHARE = _CONSTANTS.numbers("link_share")
"""Share of a link's nominal rate: up to Volta, on Ampere and Ada, Hopper, Blackwell."""

LL_GB_PER_S = _CONSTANTS.numbers("ll_gb_per_s")
"""Rate in GB/s of LL in a node: up to Volta, on Ampere and Ada, Hopper, Blackwell."""

NETWORK_LL_OF_TWO_GB_PER_S = _CONSTANTS.numbers("network_ll_of_two_gb_per_s")
NETWORK_LL_GB_PER_S = _CONSTANTS.numbers("network_ll_gb_per_s")
"""Rates in GB/s of LL from node to node, of two nodes and of more.

Each up to Volta, on Ampere, from Hopper on.
"""


@attrs.frozen(kw_only=True)
class Links:
    """The rates and latencies of a system that collectives see."""

    cycle_s: float
    """1 GHz over the GPU's clock, in 1e-9 s."""
    link_bytes_per_s: float
    """Nominal."""
    link_share: float
    """What NCCL takes a ring to reach of it."""
    memory_bytes_per_s: float
    ll128_bytes_per_s: float
    """Rate by LL128 of one of NCCL's channels."""
    ll_bytes_per_s: float
    """What NCCL takes LL to reach at most in a node."""
    network_ll_bytes_per_s: tuple[float, float]
    """Rates of LL between two nodes, and between more."""
    nic_bytes_per_s: float
    nics: int
    gpus_per_node: int
    multicast: bool
    topology: str
    network_latency_s: float | None = None
    ll_by_peer: bool = False
    """Whether exchanges go by LL up to 16 KB a peer, not a channel (`most_by_ll`)."""
    start: float = 1.0
    """Factor on all that starts a collective; 1 is what was fitted, of all systems."""
    step: float = 1.0
    """Factor on what its steps take."""
    rate: float = 1.0
    """Factor on rates in the node."""
    ll128: float = 1.0
    """Factor on what LL128 takes at first, at steps, and for each byte."""
    simple: float = 1.0
    """Factor on what Simple takes at first and at steps."""
    network: float = 1.0
    """Factor on rates between nodes."""

    @property
    def network_of_node(self) -> tuple[float, int, int]:
        """The NICs of a node: bytes per second of each, how many, for how many GPUs."""
        return self.nic_bytes_per_s, self.nics, self.gpus_per_node

    @classmethod
    def of(cls, target: Target, system: System) -> Links:
        """Return those of a system of targets."""
        return cls(
            cycle_s=1.0 / target.device.sm_clock_hz,
            link_bytes_per_s=system.link_bytes_per_s,
            link_share=LINK_SHARE[_generation(target) - 7],
            memory_bytes_per_s=target.device.memory.bytes_per_s,
            ll128_bytes_per_s=LL128_GB_PER_S[max(_generation(target) - 8, 0)] * 1e9,
            ll_bytes_per_s=LL_GB_PER_S[_generation(target) - 7] * 1e9,
            network_ll_bytes_per_s=_network_ll_bytes_per_s(target),
            nic_bytes_per_s=system.nic_bytes_per_s,
            nics=system.nics_per_node,
            gpus_per_node=system.gpus_per_node,
            multicast=system.multicast,
            topology=system.topology,
            network_latency_s=system.network_latency_s,
        )


def _generation(target: Target) -> int:
    if not target.device.runs_cuda:
        return 7
    return min(max(int(float(target.device.compute_capability)), 7), 10)


def _network_ll_bytes_per_s(target: Target) -> tuple[float, float]:
    at = min(_generation(target), 9) - 7
    return NETWORK_LL_OF_TWO_GB_PER_S[at] * 1e9, NETWORK_LL_GB_PER_S[at] * 1e9
