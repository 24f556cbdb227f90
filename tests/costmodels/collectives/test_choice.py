"""Which protocol NCCL chooses, and where it changes to the next."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perfc.costmodels import load_target, price
from perfc.costmodels.collectives import (
    COLLECTIVE,
    Collectives,
    collective_links,
    collective_parameters,
    collective_seconds,
)
from perfc.costmodels.collectives.choice import by_protocol, ll_threads, ring_switches
from perfc.costmodels.collectives.parts import (
    ll_part,
    longest_part,
    most_by_ll,
    network_channels,
    peer_bytes,
    peer_channels,
    simple_part,
)
from perfc.ir import Kernel, Work, record_of

Floats = NDArray[np.float64]
POSITIVE = st.floats(1e-3, 1e3)


def _columns(op: str, ranks: int, *sizes: float) -> Collectives:
    count = len(sizes)
    return Collectives(
        np.full(count, op),
        np.full(count, "fp16"),
        np.array(sizes, dtype=np.float64),
        np.full(count, float(ranks)),
        np.ones(count),
        np.full(count, float(ranks)),
    )


def _line(start: float, slope: float, sent: Floats) -> Floats:
    return start + slope * sent


def _seconds(target: str, c: Collectives) -> list[float]:
    links = collective_links(load_target(target), several=False)
    found: list[float] = collective_seconds(c, links, collective_parameters()).tolist()
    return found


def _measured(software: str, sizes: Sequence[int]) -> list[float]:
    """Return seconds of exchanges between two H100, as one NCCL was measured."""
    kernels = [
        Kernel(
            "all_to_all",
            "fp16",
            "",
            record_of({"bytes": size, "ranks": 2, "software": software}),
            Work(0, size, size),
        )
        for size in sizes
    ]
    target = load_target("h100-sxm-80g")
    found: list[float] = price(kernels, target, [COLLECTIVE]).seconds.tolist()
    return found


@pytest.mark.parametrize(
    ("target", "op", "ranks", "last"),
    [
        ("dgx-a100", "all_gather", 2, 20),
        ("dgx-a100", "all_gather", 4, 20),
        ("dgx-a100", "all_reduce", 2, 19),
        ("dgx-h100", "all_gather", 2, 21),
        ("dgx-h100", "all_gather", 4, 21),
        ("dgx-h100", "all_reduce", 2, 20),
    ],
)
def test_few_gpus_change_from_ll_to_simple_at_once(
    target: str, op: str, ranks: int, last: int
) -> None:
    """The power of two after the last that goes by LL takes 1.5 times as long or more.

    There nccl-tests show a jump, and nowhere before.
    """
    times = _seconds(target, _columns(op, ranks, *(2.0**n for n in range(8, 27))))
    jumps = {n: b / a for n, a, b in zip(range(8, 26), times, times[1:], strict=False)}

    assert jumps[last] > 1.5
    assert jumps[last + 1] < 1.5
    assert jumps[last] == max(jump for n, jump in jumps.items() if n <= last)


def test_many_steps_go_by_ll128_in_between() -> None:
    """Of eight A100 LL is left at about 3 MB on the wire, LL128 at some 14 MB."""
    c = _columns("all_gather", 8, 2.0**20)
    rate = np.array([300e9])

    leaves = ring_switches(c, rate, (87.7e9, np.array([480e9])), pcie=False)

    assert [2.4e6, 13.7e6] == pytest.approx([x.item() for x in leaves], rel=0.05)


def test_on_pcie_there_is_no_ll128() -> None:
    """LL is left for Simple."""
    c = _columns("all_reduce", 8, 2.0**20)

    first, second = ring_switches(
        c, np.array([24e9]), (87.7e9, np.array([480e9])), pcie=True
    )

    assert first.item() == second.item() > 0


def test_two_channels_for_each_link_lead_to_a_peer() -> None:
    """As a power of two: 32 over the switch of a DGX-A100, 2 from V100 to V100."""
    rates = np.array([300e9, 25e9, 1e9, 900e9])

    assert [32, 2, 2, 32] == peer_channels(rates).tolist()


def test_exchanges_go_by_ll_up_to_16_kib_a_channel() -> None:
    """Later versions of NCCL take 16 KiB a peer."""
    channels = np.array([32.0, 2.0])

    assert [2**19, 2**15] == most_by_ll(channels, by_peer=False).tolist()
    assert [2**14, 2**14] == most_by_ll(channels, by_peer=True).tolist()


def test_peers_share_channels() -> None:
    """Of eight each gets four of 32, once a part is large enough."""
    c = _columns("all_to_all", 8, *(8 * 2.0**n for n in (12, 14, 18, 20)))
    channels = np.full(4, 32.0)

    by_ll = ll_part(c, channels, by_peer=False).tolist()

    assert [2**12, 2**13, 2**16, 2**18] == by_ll
    assert peer_bytes(c).tolist() == ll_part(c, channels, by_peer=True).tolist()
    assert [2**12, 2**14, 2**16, 2**18] == simple_part(c, channels).tolist()


def test_a_large_part_is_halved() -> None:
    """Of eight GPUs four channels lead to a peer, up to 16 MiB each; then up to 32."""
    c = _columns("send_recv", 8, *(2.0**n for n in (24, 26, 27, 29, 31)))

    parts = longest_part(c, np.full(5, 32.0)).tolist()

    assert [2**22, 2**24, 2**24, 2**24, 2**26] == parts


def test_fewer_channels_lead_to_a_peer_of_many() -> None:
    """Over a NIC of 400 Gb/s four, two of ten ranks, one of eighty."""
    ranks = (2, 10, 80)
    nic = np.array([50e9])

    counts = [network_channels(_columns("send_recv", n, 2**25), nic) for n in ranks]

    assert [4, 2, 1] == [count.item() for count in counts]


def test_one_peer_does_not_fill_the_nics() -> None:
    """Of ten nodes a GPU sends to its neighbour at half of what it sends to all."""
    links = collective_links(load_target("dgx-h100"), several=True)
    sent = [
        attrs.evolve(
            _columns(op, 10, 2.0**31), nodes=np.full(1, 10.0), per_node=np.ones(1)
        )
        for op in ("send_recv", "all_to_all")
    ]
    p = collective_parameters()

    rates = [(one.wire / collective_seconds(one, links, p)).item() for one in sent]

    assert 0.5 < rates[0] / rates[1] < 0.8


@pytest.mark.parametrize("target", ["dgx-a100", "dgx-h100", "dgx-v100", "l40s"])
@pytest.mark.parametrize("by_peer", [False, True])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_no_exchange_of_more_takes_less(
    target: str, *, by_peer: bool, ranks: int
) -> None:
    """Whichever way NCCL chooses, also where it leaves LL too late."""
    found = collective_links(load_target(target), several=False)
    links = attrs.evolve(found, ll_by_peer=by_peer)
    c = _columns("all_to_all", ranks, *np.exp2(np.arange(6, 32, 0.25)).tolist())

    times = collective_seconds(c, links, collective_parameters())

    assert (np.diff(times) >= -1e-9 * times[1:]).all()


def test_versions_of_nccl_leave_ll_where_they_do() -> None:
    """NCCL 2.29 at 16 KiB a peer, which shows; 2.23 goes on, and is faster there."""
    sizes = [2**15, 2**15 + 32, 2**17]

    older, newer = (
        _measured(f"aiconfigurator nccl {number}", sizes)
        for number in ("2.23", "2.29.2")
    )

    assert newer[1] > 1.1 * newer[0]
    assert older[1] == pytest.approx(older[0], rel=0.01)
    assert older[2] < 0.8 * newer[2]


def test_ll_has_64_to_512_threads() -> None:
    """From 8 bytes of each rank a thread on; in doublings, of which there are 3."""
    sizes = [8 * 64 * 4 * 2.0**n for n in (-3, 0, 1, 3, 9)]

    shares = ll_threads(_columns("all_gather", 4, *sizes)).tolist()

    assert pytest.approx([0, 0, 1 / 3, 1, 1]) == shares


@given(
    starts=st.tuples(POSITIVE, POSITIVE, POSITIVE),
    slopes=st.tuples(POSITIVE, POSITIVE, POSITIVE),
    leaves=st.tuples(POSITIVE, POSITIVE).map(sorted),
)
def test_no_choice_lets_more_bytes_take_less(
    starts: tuple[float, ...], slopes: tuple[float, ...], leaves: list[float]
) -> None:
    """Times never fall, whatever the protocols are like and wherever they change."""
    wire = np.sort(np.append(np.linspace(1e-4, 2e3, 200), leaves))
    at = (np.full(len(wire), leaves[0]), np.full(len(wire), leaves[1]))

    times = by_protocol(
        wire,
        [
            functools.partial(_line, start, slope)
            for start, slope in zip(starts, slopes, strict=True)
        ],
        at,
    )

    assert (np.diff(times) >= -1e-9 * times[1:]).all()
