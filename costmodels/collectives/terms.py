"""What is fitted of the times of collectives."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class CollectiveParameters:
    """Fitted by `benchmarks/training/collectives.py`: ns at 1 GHz, shares of rates."""

    start_ns: float
    """Start of any collective: its launch, and the members' first meeting."""
    ll_threads_ns: float
    """What LL takes longer at first with 512 threads than with 64."""
    ll_threads_step_ns: float
    """Extra time of LL at each step of a ring with 512 threads instead of 64."""
    ring_ll_step_ns: float
    """Time of a step of LL besides the hop over the links."""
    ring_ll_rate: float
    ring_ll128_start_ns: float
    ring_ll128_step_ns: float
    ring_ll128_channels: float
    """How many of NCCL's channels, each at the rate that its tuning gives LL128."""
    ring_simple_start_ns: float
    ring_simple_step_ns: float
    ring_simple_rate: float
    ring_fill: float
    """Share of a channel's first chunk that is sent while nothing else is."""
    memory_passes: float
    """How often Simple moves what it sends through device memory, one by one with the
    link."""
    exchange_ll_step_ns: float
    exchange_ll_byte_ns: float
    """Time of a byte that a channel sends by LL."""
    exchange_simple_start_ns: float
    exchange_simple_byte_ns: float
    """Time of a byte in the first chunk of a channel."""
    exchange_channel_byte_ns: float
    """Time of a byte that a channel sends by Simple."""
    exchange_simple_step_ns: float
    exchange_simple_rate: float
    exchange_copy_rate: float
    """Rate of copying the own share in an exchange, over device memory's rate."""
    copy_rate: float
    """Rate of copying the own share in a ring, over device memory's rate."""
    reduce_ns: float
    """What a step of LL takes longer where it adds up."""
    narrow_rate: float
    """Rate of sums in one byte over that of wider ones."""
    nvls_start_ns: float
    nvls_rate: float
    network_rate: float
    """Rate of rings and trees across the network, over the NICs' rate."""
    network_exchange_rate: float
    network_start_us: float
    """Start of Simple across the network."""
    network_step_us: float
    """Time of a ring's or a tree's step from node to node."""
    network_inside_step_ns: float
    """Time of a step in a node, of rings that cross the network."""
    network_peer_us: float
    """Time for each GPU on another node with which one exchanges."""
