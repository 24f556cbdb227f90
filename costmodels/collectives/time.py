"""Seconds of a collective on the links of a system, as NCCL runs it.

NCCL sends by one of three protocols. LL and LL128 put a flag beside every 4 or 120
bytes, so that a receiver sees data the moment it arrives; Simple moves large pieces and
synchronises after each. One costs rate, the other time at the start and at every step:

    t_p = (start + start_p + steps * step_p) * u + hops_p
        + wire / (rate_p * link) + fill_p + memory_s

and NCCL chooses one by estimates of its own (`choice.py`) or, of what goes
from GPU to GPU, by its parts (`parts.py`). *wire* is what leaves a GPU:
(n-1)/n of the bytes, twice that for an all-reduce (the bus factors of nccl-tests,
`doc/PERFORMANCE.md`); *steps* are those of a ring, n-1 or 2(n-1). *link* is, of a ring,
what NCCL takes links to reach (`src/graph/topo.h`). *copied* is the own share, which
goes through device memory, as does what Simple sends; threads of LL and LL128 copy it
at the rate at which they send.

Latency is the node's. A step of LL is a hop over its links, whatever the clock (NCCL's
own figure, `src/graph/tuning.cc`, hwLatencies), and what SMs need besides. What SMs
need is in ns at 1 GHz, so that the clock (u = 1 GHz / clock) stands for the age of a
node that nobody has measured; one small message there moves all starts together
(`Links.start`).

Simple passes on chunks of up to 512 KB a channel (a step of NCCL's eight in a buffer of
4 MB): of the first one a share, *fill*, is hidden by nothing.

From Hopper on NVSwitch adds up and multicasts (NVLS), so that an all-reduce sends its
bytes once; of sums of whole numbers of one byte NCCL does not make use of it, nor, in
the rows that were fitted, for four GPUs and fewer.

Between nodes a ring crosses the network once a node, with all NICs of the node that
belong to members: the slower of network and link sets the rate. Sums of many ranks go
by a tree of the nodes, whose way is shorter, in the nodes by chains or the switch; what
is small goes by LL. NCCL has no tree for gathers and scatters but PAT, which it takes
where members are alone on their nodes; where they share nodes rings visit all of them,
so that latency is as many steps. All-to-all and send/recv go from GPU to GPU, each at
its own NIC's rate, with a message for each peer.
"""

from __future__ import annotations

import attrs
import numpy as np

from perfc.costmodels.collectives import choice, parts
from perfc.costmodels.collectives.links import Links
from perfc.costmodels.collectives.sizes import Collectives
from perfc.costmodels.collectives.terms import CollectiveParameters
from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Flags, Floats
from perfc.costmodels.machine import CUBE_MESH, MESH, PCIE

LEAST_ACROSS = 2**25
"""Bytes of the smallest collective across nodes that was measured."""

_CONSTANTS = constants("collectives")

_LL_RING_US = _CONSTANTS.numbers("ll_ring_us")
_LL_TREE_US = _CONSTANTS.numbers("ll_tree_us")
"""Microseconds of LL by a ring or a tree across nodes, on any GPU.

Its start, a step over the network and one in a node.
"""

_EXCHANGE_US = _CONSTANTS.numbers("exchange_us")
"""Microseconds of exchanges by Simple, in parts as `_LL_TREE_US`.

By Simple exchanges of any size go across nodes, to all peers at once.
"""

_LL_ALONE_US = _CONSTANTS.number("ll_alone_us")
"""Microseconds of a step of LL by a ring of members that are alone on their nodes."""

_NVLS_TREE_US = _CONSTANTS.numbers("nvls_tree_us")
_NVLS_TREE_CHUNKS = _CONSTANTS.number("nvls_tree_chunks")
"""Parameters of NVLSTree, sums in the switches of nodes and a tree of those: start and
step in microseconds, and chunks on the way in a node."""

_PAT_US = _CONSTANTS.numbers("pat_us")
_PAT_RATE = _CONSTANTS.number("pat_rate")
"""Parameters of PAT, gathers and scatters by trees: microseconds of the start, of each
doubling of the nodes and of each member, and what is left of the rate."""

_LL_RING_RATE = _CONSTANTS.number("ll_ring_rate")
_LL_TREE_RATE = _CONSTANTS.number("ll_tree_rate")
"""Share of Simple's rate across nodes that LL has by a ring, and by a tree."""

_TREE_US = _CONSTANTS.numbers("tree_us")
"""Microseconds of Simple by a tree, in parts as `_LL_TREE_US`."""

_TREE_CHUNK, _CHANNELS_PER_NIC = 2**19, 2
"""Bytes that a channel of a tree passes on at once (an eighth of NCCL_BUFFSIZE), and
how many channels share a NIC."""

_LL_SHARE, _LL128_SHARE = 1 / 2, 120 / 128
"""Shares of the bytes that LL and LL128 send which are not flags."""

_CUBE_MESH_LINKS = (1, 1, 1, 2, 4, 6)
"""Links of a V100's six that rings of so many members use, by members.

Of five members and more all (NVIDIA DGX-1 System Architecture whitepaper, WP-08437,
figure of the hybrid cube mesh; members are neighbours in the numbering of devices).
"""

_QUAD = 4

_NEAR = _CONSTANTS.number("near_switch")
"""Multiple of a ring's time up to which NVLS counts as possibly chosen."""


def collective_seconds(c: Collectives, links: Links, p: CollectiveParameters) -> Floats:
    """Return the seconds of each collective on an idle system, shape (rows,).

    Rows of several nodes need a network: their rate is that of its NICs.
    """
    inside = np.where(c.is_ring, _ring_s(c, links, p), _exchange_s(c, links, p))
    if links.multicast:
        switched = c.uses_switch
        inside = np.where(switched, np.minimum(inside, _nvls_s(c, links, p)), inside)
    across = c.nodes > 1
    if not across.any():
        return inside
    # The seconds of collectives whose members are on several nodes.
    rate = network_rate(c, links)
    network_s = np.where(
        c.is_ring,
        _network_ring_s(c, rate, links, p),
        _network_exchange_s(c, rate, links, p),
    )
    return np.where(across, network_s, inside)


def near_switch(c: Collectives, links: Links, p: CollectiveParameters) -> Flags:
    """Whether sums by the switch come near those by a ring, or below them, (rows,)."""
    if not links.multicast:
        return np.zeros(len(c), dtype=np.bool_)
    near: Flags = _nvls_s(c, links, p) < _NEAR * _ring_s(c, links, p)
    return c.uses_switch & near


def _latency_s(
    starts_ns: float | Floats, steps_ns: Floats, links: Links, p: CollectiveParameters
) -> Floats:
    """Return the latency of a protocol that starts and steps in so many ns at 1 GHz."""
    start_ns = (p.start_ns + starts_ns) * links.start
    return (start_ns + steps_ns * links.step) * links.cycle_s


def _simple_s(
    starts_ns: float | Floats, steps_ns: Floats, links: Links, p: CollectiveParameters
) -> Floats:
    return _latency_s(links.simple * starts_ns, links.simple * steps_ns, links, p)


def _ring_s(c: Collectives, links: Links, p: CollectiveParameters) -> Floats:
    # In a broadcast no rank has a share of its own that is copied into the result.
    rate = links.link_share * _ring_rate(c, links)
    rate *= np.where(c.narrow, p.narrow_rate, 1.0)
    own = np.where(c.op == "broadcast", 0.0, c.bytes / c.ranks)
    moved_byte_s = _moved_s(own / p.copy_rate, c, links, p) / c.wire
    first = parts.SIMPLE_CHUNK * _ring_blocks(c, links)
    # Threads of LL and LL128 pass on what they send, and copy the own share like it.
    passed = 1 + own / c.wire
    # LL128 is limited by its threads or by the links, whichever is slower; its flags
    # take a part of the links' rate.
    channels = p.ring_ll128_channels * links.ll128_bytes_per_s * links.rate
    ll128_byte_s = np.maximum(
        links.ll128 * passed / channels, 1 / (_LL128_SHARE * rate)
    )
    # The latency of LL, which grows with its threads.
    # At a step they keep what comes, but for a reduce-scatter, which keeps its share
    # alone.
    adding_ns = np.where(c.reduces, p.reduce_ns, 0.0)
    keeping = np.where(c.op == "reduce_scatter", 0.0, c.ranks - 1)
    threads = choice.ll_threads(c)
    steps_ns = c.steps * (p.ring_ll_step_ns + adding_ns)
    steps_ns += keeping * p.ll_threads_step_ns * threads
    hops_s = c.steps * choice.hop_s(pcie=links.topology == PCIE) * links.step
    ll_s = _latency_s(p.ll_threads_ns * threads, steps_ns, links, p) + hops_s
    ll128_s = _latency_s(
        links.ll128 * p.ring_ll128_start_ns,
        links.ll128 * p.ring_ll128_step_ns * c.steps,
        links,
        p,
    )
    simple_s = _simple_s(
        p.ring_simple_start_ns, p.ring_simple_step_ns * c.steps, links, p
    )

    def by_ll(sent: Floats) -> Floats:
        return ll_s + sent * passed / (p.ring_ll_rate * rate)

    def by_ll128(sent: Floats) -> Floats:
        return ll128_s + sent * ll128_byte_s

    def by_simple(sent: Floats) -> Floats:
        fill_s = p.ring_fill * np.minimum(sent * own / c.wire, first) / rate
        wire_s = sent / (p.ring_simple_rate * rate)
        return simple_s + fill_s + wire_s + sent * moved_byte_s

    # The switch between protocols follows NCCL's own estimates, which may be wrong, and
    # not the least of these times.
    ways = (by_ll, by_ll128, by_simple)
    return choice.by_protocol(c.wire, ways, _ring_switches(c, links))


def _ring_blocks(c: Collectives, links: Links) -> Floats:
    """Return how many channels a ring has at the nominal rate of its links, (rows,)."""
    nominal = _ring_rate(c, links) / links.rate
    return np.clip(
        np.rint(nominal / parts.CHANNEL_BYTES_PER_S), 1.0, parts.MOST_CHANNELS
    )


def _ring_switches(c: Collectives, links: Links) -> tuple[Floats, Floats]:
    """Return where NCCL changes protocols, which does not know how fast a system is."""
    nominal = _ring_rate(c, links) / links.rate
    blocks = np.maximum(np.rint(nominal / parts.CHANNEL_BYTES_PER_S), 1.0)
    most = (links.ll_bytes_per_s, blocks * links.ll128_bytes_per_s)
    return choice.ring_switches(c, nominal, most, pcie=links.topology == PCIE)


def _moved_s(
    copied: Floats, c: Collectives, links: Links, p: CollectiveParameters
) -> Floats:
    """Return the seconds of device memory for copies, and for what goes by the link."""
    moved: Floats = copied + p.memory_passes * c.wire
    return moved / (links.memory_bytes_per_s * links.rate)


def _exchange_s(c: Collectives, links: Links, p: CollectiveParameters) -> Floats:
    channels = parts.peer_channels(
        _exchange_rate(c, links)
        / links.rate
        / np.where(links.topology in {CUBE_MESH, MESH}, _peers(c), 1.0)
    )
    most = parts.most_by_ll(channels, by_peer=links.ll_by_peer)
    sent = parts.peer_bytes(c)
    switch = attrs.evolve(c, bytes=c.bytes * most / sent)
    by_ll = _exchange_ll_s(c, channels, links, p)
    # More bytes never take less.
    # The first chunk of a channel is stored before it is read: nothing hides it.
    first = np.minimum(parts.simple_part(c, channels), parts.SIMPLE_CHUNK)
    starts_ns = p.exchange_simple_start_ns + p.exchange_simple_byte_ns * first
    simple_s = _simple_s(starts_ns, p.exchange_simple_step_ns * c.steps, links, p)
    own = np.where(c.op == "all_to_all", c.bytes / c.ranks, 0.0)
    moved_s = _moved_s(own / p.exchange_copy_rate, c, links, p)
    wire_s = c.wire / (p.exchange_simple_rate * _exchange_rate(c, links))
    part_ns = parts.longest_part(c, channels) * p.exchange_channel_byte_ns
    wire_s = np.maximum(wire_s, part_ns * links.cycle_s)
    # The seconds that links and memory take together.
    # Through a switch, or the bus, all peers' data pass one port, each piece after its
    # copy. Where each pair has links of its own, the slowest hides the copies of
    # others.
    if links.topology in {CUBE_MESH, MESH}:
        beside = np.maximum(wire_s, moved_s)
    else:
        beside = wire_s + moved_s
    by_simple = np.maximum(
        simple_s + beside,
        _exchange_ll_s(switch, channels, links, p),
    )
    found: Floats = np.where(sent <= most, by_ll, by_simple)
    return found


def _exchange_ll_s(
    c: Collectives, channels: Floats, links: Links, p: CollectiveParameters
) -> Floats:
    more_ns = p.ll_threads_ns * choice.ll_threads(c)
    ll_s = _latency_s(more_ns, c.steps * p.exchange_ll_step_ns, links, p)
    # A channel is as fast as its threads; half of what links send are flags.
    part = parts.ll_part(c, channels, by_peer=links.ll_by_peer)
    channel_s = part * p.exchange_ll_byte_ns * links.cycle_s
    wire_s = c.wire / (_LL_SHARE * _exchange_rate(c, links))
    found: Floats = ll_s + np.maximum(channel_s, wire_s)
    return found


def _nvls_s(c: Collectives, links: Links, p: CollectiveParameters) -> Floats:
    rate = p.nvls_rate * links.link_bytes_per_s * links.rate
    return _latency_s(p.nvls_start_ns, np.zeros(len(c)), links, p) + c.bytes / rate


def _ring_rate(c: Collectives, links: Links) -> Floats:
    """Return the rate that rings get of a GPU's links, in bytes/s."""
    whole = links.link_bytes_per_s * links.rate
    if links.topology == CUBE_MESH:
        members = np.minimum(c.per_node, len(_CUBE_MESH_LINKS) - 1).astype(np.intp)
        return np.array(_CUBE_MESH_LINKS)[members] / _CUBE_MESH_LINKS[-1] * whole
    return _reached(c, links) * whole


def _reached(c: Collectives, links: Links) -> Floats:
    if links.topology != MESH:
        return np.ones(len(c))
    return np.minimum(_peers(c) / max(links.gpus_per_node - 1, 1), 1.0)


def _peers(c: Collectives) -> Floats:
    """Return how many others a member has in its node; one where it is alone.

    A member alone sends nothing there, at whatever rate.
    """
    return np.maximum(c.per_node - 1.0, 1.0)


def _exchange_rate(c: Collectives, links: Links) -> Floats:
    """Return the rate at which a GPU sends to all others at once, in bytes/s.

    In the cube mesh the slowest pair has one link of six: in a half of it each GPU has
    one to two of the others, and two to the third. Of eight, three have no link to it:
    what they get goes over the partner in the other half, whose two links then carry
    four shares, and the single links two, so that all pairs have half a link.
    """
    whole = links.link_bytes_per_s * links.rate
    if links.topology != CUBE_MESH:
        return _reached(c, links) * whole
    pair = np.where(c.per_node <= _QUAD, 1.0, 0.5) / _CUBE_MESH_LINKS[-1]
    return np.minimum(_peers(c) * pair, 1.0) * whole


def node_rate(c: Collectives, links: Links) -> Floats:
    """Return the rate at which a GPU can send in its node: bytes/s, shape (rows,)."""
    found: Floats = np.where(c.is_ring, _ring_rate(c, links), _exchange_rate(c, links))
    return found


def network_rate(c: Collectives, links: Links) -> Floats:
    """Return the rate of a member's sends to other nodes: bytes/s, shape (rows,).

    Members of a node share its NICs; a ring leaves it once, with all of them.
    """
    share = max(links.nics / links.gpus_per_node, 1.0)
    nics = np.clip(c.per_node * share, 1.0, links.nics)
    nic = links.nic_bytes_per_s * links.network
    found: Floats = np.where(c.is_ring, nics, nics / c.per_node) * nic
    return found


def _network_start_s(links: Links, p: CollectiveParameters) -> float:
    """Return the seconds that sends by Simple need at first, as was measured."""
    return p.network_start_us * 1e-6 * links.start


def _network_ring_s(
    c: Collectives, node_bytes_per_s: Floats, links: Links, p: CollectiveParameters
) -> Floats:
    times = np.where(c.op == "all_reduce", 2.0, 1.0)
    crossings = (c.nodes - 1) * times
    inside = np.maximum(c.steps - crossings, 0.0)
    simple = _latency_s(
        p.ring_simple_start_ns, inside * p.network_inside_step_ns, links, p
    )
    # Rows are of ten nodes and large: none by Simple is taken to be shorter than by LL.
    step_s = np.maximum(p.network_step_us, _ll_step_us(c)) * 1e-6 * links.step
    if links.network_latency_s is not None:
        step_s = np.full(len(c), links.network_latency_s)
    rate = np.minimum(
        p.ring_simple_rate * links.link_share * _ring_rate(c, links),
        p.network_rate * node_bytes_per_s,
    )
    simple += _network_start_s(links, p) + crossings * step_s + c.wire / rate
    tree = np.where(c.op == "all_reduce", _network_tree_s(c, rate, links), np.inf)
    by_trees = np.isin(c.op, ("all_gather", "reduce_scatter")) & (c.per_node == 1)
    # The seconds of gathers and scatters by parallel aggregated trees.
    # By NCCL's own figures, of 2.23 and later: no rows are of what they are fastest
    # for.
    start_us, doubling_us, member_us = _PAT_US
    steps_us = np.log2(c.nodes) * doubling_us + c.ranks * member_us
    latency_s = (start_us * links.start + steps_us * links.step) * 1e-6
    pat = np.where(by_trees, latency_s + c.wire / (_PAT_RATE * rate), np.inf)
    ways = (simple, tree, pat, _network_ll_s(c, rate, links))
    found: Floats = np.minimum.reduce(ways)
    return found


def _network_tree_s(c: Collectives, rate: Floats, links: Links) -> Floats:
    """Return the seconds of a sum up and down a tree of nodes, and a chain in each.

    The latencies are NCCL's own figures. Each on the way passes on a chunk once it has
    all of it, so that the way takes as many of them longer. No parameter is fitted to
    rows; of 80 ranks on 10 nodes 32 MB to 1 GB are within 8 %. Where a switch adds up
    in the nodes, it stands for the chains.
    """
    channels = _CHANNELS_PER_NIC * np.clip(c.per_node, 1, max(links.nics, 1))
    chunk_s = np.minimum(_TREE_CHUNK * channels, c.bytes) / rate
    levels, chain = 2 * np.log2(c.nodes), 2 * (c.per_node - 1)
    way_s = _ll_s(_TREE_US, levels, chain, links) + (levels + chain) * chunk_s
    if links.multicast:
        switched_s = _ll_s((*_NVLS_TREE_US, 0.0), levels, 0 * chain, links)
        switched_s += (levels + _NVLS_TREE_CHUNKS) * chunk_s
        way_s = np.where(c.switch_adds, np.minimum(way_s, switched_s), way_s)
    found: Floats = way_s + c.wire / rate
    return found


def _network_ll_s(c: Collectives, rate: Floats, links: Links) -> Floats:
    """Return the seconds of LL: by a ring, or of an all-reduce by a tree of nodes.

    NCCL's own figures, by which it chooses; no rows of such sizes were fitted.
    """
    two, more = links.network_ll_bytes_per_s
    most = np.where(c.nodes > 2, more, two) * links.network  # noqa: PLR2004 - a pair
    crossings = (c.nodes - 1) * np.where(c.op == "all_reduce", 2.0, 1.0)
    inside = np.maximum(c.steps - crossings, 0.0)
    start_us, _, inside_us = _LL_RING_US
    times_us = start_us, _ll_step_us(c), inside_us
    ring_s = _ll_s(times_us, crossings, inside, links)
    ring_s += c.wire / np.minimum(_LL_RING_RATE * rate, most)
    tree_s = _ll_s(_LL_TREE_US, 2 * np.log2(c.nodes), 2 * (c.per_node - 1), links)
    tree_s += c.wire / np.minimum(_LL_TREE_RATE * rate, most)
    found: Floats = np.where(c.op == "all_reduce", np.minimum(ring_s, tree_s), ring_s)
    return found


def _ll_step_us(c: Collectives) -> Floats:
    """Return the microseconds of a ring's step by LL from node to node."""
    found: Floats = np.where(c.per_node == 1, _LL_ALONE_US, _LL_RING_US[1])
    return found


def _ll_s(
    times_us: tuple[float | Floats, ...],
    crossings: Floats,
    inside: Floats,
    links: Links,
) -> Floats:
    start_us, network_us, node_us = times_us
    if links.network_latency_s is not None:
        network_us = np.maximum(network_us, links.network_latency_s * 1e6)
    steps_us = crossings * network_us + inside * node_us
    found: Floats = (start_us * links.start + steps_us * links.step) * 1e-6
    return found


def _network_exchange_s(
    c: Collectives, gpu_bytes_per_s: Floats, links: Links, p: CollectiveParameters
) -> Floats:
    pair = c.op == "send_recv"
    remote = np.where(pair, 1.0, c.ranks - c.per_node)
    away = c.bytes * np.where(pair, 1.0, remote / c.ranks)
    started = _latency_s(p.exchange_simple_start_ns, np.zeros(len(c)), links, p)
    started += _network_start_s(links, p)
    peers_s = remote * p.network_peer_us * 1e-6 * links.step
    rate = p.network_exchange_rate * gpu_bytes_per_s
    # To a single peer few channels lead, which do not fill the NICs.
    few = parts.network_channels(c, gpu_bytes_per_s) * parts.NETWORK_CHANNEL_BYTES_PER_S
    away_s = away / np.where(pair, np.minimum(rate, few), rate)
    # What is small fills no pipeline: it starts at once, and has half the rate.
    small = _ll_s(_EXCHANGE_US, np.ones(len(c)), np.zeros(len(c)), links)
    found: Floats = peers_s + np.minimum(started + away_s, small + 2 * away_s)
    return found
