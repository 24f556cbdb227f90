"""Collectives: protocols on links, and what rows of an installation change."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import (
    COLLECTIVES,
    Estimate,
    KernelTable,
    Provenance,
    Target,
    load_target,
    price,
)
from perfc.costmodels.collectives import (
    COLLECTIVE,
    Collectives,
    collective_links,
    collective_parameters,
    collective_rows_of,
    collective_seconds,
    exchanges_by_peer,
    weighed,
)
from perfc.ir import Kernel, PerfcError, Work, record_of

BARE = attrs.evolve(COLLECTIVE, measured=False)
SIZES = st.integers(4, 35).map(lambda octave: float(2**octave))


def _kernel(
    op: str = "all_reduce",
    size: float = 2**20,
    ranks: int = 8,
    nodes: int = 1,
    dtype: str = "fp16",
    **params: object,
) -> Kernel:
    given_ = {"bytes": round(size), "ranks": ranks, "nodes": nodes, **params}
    moved = round(size)
    return Kernel(op, dtype, "", record_of(given_), Work(0, moved, moved))


def _priced(target: Target, *kernels: Kernel) -> Estimate:
    return price(kernels, target, [COLLECTIVE])


def _seconds(target: str, *kernels: Kernel) -> list[float]:
    found: list[float] = price(kernels, load_target(target), [BARE]).seconds.tolist()
    return found


@given(
    op=st.sampled_from(sorted(COLLECTIVES)),
    ranks=st.integers(2, 64),
    size=SIZES,
    target=st.sampled_from(["dgx-v100", "dgx-a100", "dgx-h100", "zionex", "l4"]),
)
def test_more_bytes_take_no_less(op: str, ranks: int, size: float, target: str) -> None:
    """Of one op and communicator the model never says less for twice the bytes."""
    loaded = load_target(target)
    nodes = -(-ranks // 8) if loaded.system else 1
    one, two = _seconds(
        target,
        _kernel(op, size, ranks, nodes),
        _kernel(op, 2 * size, ranks, nodes),
    )

    assert 0 < one <= two


@given(
    op=st.sampled_from(sorted(COLLECTIVES)),
    ranks=st.integers(2, 300),
    spread=st.integers(1, 4),
    first=st.floats(1, 2**34),
    grows=st.floats(1, 3),
    name=st.sampled_from(["dgx-v100", "dgx-a100", "dgx-h100", "polaris", "zionex"]),
    link=st.floats(0.03, 30),
    nic=st.floats(0.03, 30),
    each=st.sampled_from([2, 4, 8, 16]),
    multicast=st.booleans(),
)
def test_more_bytes_take_no_less_on_any_system(
    *,
    op: str,
    ranks: int,
    spread: int,
    first: float,
    grows: float,
    name: str,
    link: float,
    nic: float,
    each: int,
    multicast: bool,
) -> None:
    """Nor on nodes of any size and rates, with members spread over any number."""
    target = load_target(name)
    assert target.system is not None
    system = attrs.evolve(
        target.system,
        link_bytes_per_s=link * target.system.link_bytes_per_s,
        nic_bytes_per_s=nic * target.system.nic_bytes_per_s,
        gpus_per_node=each,
        multicast=multicast,
    )
    nodes = min(spread * -(-ranks // each), ranks)
    kernels = [_kernel(op, b, ranks, nodes) for b in (first, first * grows)]
    made = attrs.evolve(target, system=system)
    one, two = price(kernels, made, [BARE]).seconds.tolist()

    assert 0 < one <= two * (1 + 1e-12)


@pytest.mark.parametrize("name", ["polaris", "dgx-v100"])
def test_one_member_a_node_needs_no_links(name: str) -> None:
    """What GPUs of a mesh send that are alone in their nodes goes by the network."""
    found = _seconds(name, *(_kernel(op, 2**26, 16, 16) for op in sorted(COLLECTIVES)))
    slowest = 2**26 / 1e9

    assert all(0 < seconds < slowest for seconds in found)


@given(
    op=st.sampled_from(sorted(COLLECTIVES)),
    ranks=st.integers(2, 8),
    size=SIZES,
    name=st.sampled_from(["dgx-a100", "dgx-v100", "l4", "mi300x", "t4"]),
)
def test_nothing_is_sent_faster_than_the_link(
    op: str, ranks: int, size: float, name: str
) -> None:
    """What leaves a GPU takes its time on the link, but for sums in the switch."""
    links = collective_links(load_target(name), several=False)
    c = Collectives.of(KernelTable([_kernel(op, size, ranks)]))

    least_s = float(c.wire[0]) / links.link_bytes_per_s
    assert least_s <= _seconds(name, _kernel(op, size, ranks))[0]


def test_bytes_on_the_wire_are_those_of_nccl_tests() -> None:
    """The bus factors: 2(n-1)/n, (n-1)/n, and all bytes of a broadcast."""
    ops = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
    c = Collectives.of(KernelTable([_kernel(op, 800, 4) for op in ops]))

    assert [1200, 600, 600, 600, 800] == c.wire.tolist()


def test_the_switch_adds_up_for_eight_gpus_of_hopper() -> None:
    """NVLS makes a large all-reduce shorter; not of bytes, of four GPUs, on A100."""
    wide, narrow = (_kernel(size=2**30, dtype=dtype) for dtype in ("bf16", "int8"))
    bf16_s, int8_s = _seconds("dgx-h100", wide, narrow)

    assert bf16_s < 0.85 * int8_s
    with_switch, without = (
        _seconds(name, _kernel(size=2**30, ranks=4))[0]
        for name in ("dgx-h100", "h100-sxm-80g")
    )
    assert with_switch == without
    a100 = _seconds("dgx-a100", wide, narrow)
    assert 0.85 < a100[0] / a100[1] <= 1


def test_the_network_is_slower_than_the_node() -> None:
    """The same members on more nodes take longer, and slower NICs longer still."""
    one, two, eight = _seconds(
        "dgx-h100", *(_kernel(size=2**30, ranks=8, nodes=n) for n in (1, 2, 8))
    )
    slow = load_target("dgx-h100", {"network.nic_gbit_per_s": "100"})
    behind = price([_kernel(size=2**30, nodes=8)], slow, [BARE]).seconds[0]

    assert one < two < eight < behind


def test_small_sums_go_by_a_tree_of_nodes() -> None:
    """Sixteen times the nodes are four levels more; a gather visits them all."""
    sums, gathers = (
        _seconds("dgx-h100", *(_kernel(op, 1024, 8 * n, n) for n in (8, 128)))
        for op in ("all_reduce", "all_gather")
    )

    assert sums[1] - sums[0] == pytest.approx(4 * 2 * 5e-6, rel=0.05)
    assert gathers[1] > 10 * gathers[0]


def test_large_sums_of_many_nodes_go_by_a_tree_too() -> None:
    """Sixteen times the nodes add a few chunks' time, not sixteen times the steps."""
    sums, gathered = (
        _seconds("dgx-h100", *(_kernel(op, 2**27, 8 * n, n) for n in (8, 128)))
        for op in ("all_reduce", "all_gather")
    )

    assert sums[1] < 1.5 * sums[0]
    assert gathered[1] > 4 * gathered[0]


def test_what_is_smaller_than_was_measured_across_nodes_is_less_sure() -> None:
    """Rows of a measured cluster begin at 32 MiB; NCCL's own figures hold below."""
    small, large = (_kernel(size=2**n, ranks=64, nodes=8) for n in (20, 28))
    found = _priced(load_target("dgx-h100"), small, large)

    assert found.sigma_shared[0] > 2 * found.sigma_shared[1]


@pytest.mark.parametrize("gbit_per_s", [100, 200, 400, 800])
def test_rows_of_a_network_say_nothing_of_another(gbit_per_s: int) -> None:
    """Eight NICs a node carry no more than they can, and not much less."""
    rate = {"network.nic_gbit_per_s": str(gbit_per_s)}
    kernel = _kernel(size=2**30, ranks=64, nodes=8, gpus_per_node=8)
    found, own = (
        _priced(load_target("dgx-h100", fields), kernel) for fields in (rate, {})
    )
    bus = 2**30 * 2 * 63 / 64 / found.seconds[0]

    assert 0.7 < bus / min(gbit_per_s * 1e9, 450e9) < 1.0
    assert (gbit_per_s == 400) == (found.sigma_shared[0] == own.sigma_shared[0])


def test_many_more_nodes_than_were_measured_are_less_sure() -> None:
    """Ten nodes were; NCCL may choose another algorithm for 128."""
    kernels = [_kernel(size=2**30, ranks=8 * n, nodes=n) for n in (10, 16, 128)]
    sigmas = _priced(load_target("dgx-h100"), *kernels).sigma_shared.tolist()

    assert sigmas == sorted(set(sigmas))


def test_fast_cards_without_a_link_go_over_pcie() -> None:
    """An L4 has no NVLink: its collectives take the bus's time, and are less sure."""
    card, module = (load_target(name) for name in ("l4", "a100-sxm-80g"))
    slow, fast = (_priced(t, _kernel(size=2**28)) for t in (card, module))

    assert slow.seconds[0] > 5 * fast.seconds[0]
    assert slow.sigma_shared[0] > fast.sigma_shared[0]


def test_cards_that_cannot_reach_each_other_go_through_host_memory() -> None:
    """A GeForce has the bus of an L4, and less of it: its driver has no peer access."""
    staged, direct = (
        _seconds("rtx-4090", _kernel(size=2**28)),
        _seconds("l4", _kernel(size=2**28)),
    )

    assert 1.5 < staged[0] / direct[0] < 2.5


@pytest.mark.parametrize(
    ("software", "by_peer"),
    [
        ("aiconfigurator nccl 2.29.2", True),
        ("NCCL 2.30", True),
        ("nccl-2.28.3", False),
        ("nccl 2.4", False),
        ("torch 2.11", False),
    ],
)
def test_the_number_of_an_nccl_says_how_its_exchanges_leave_ll(
    software: str, *, by_peer: bool
) -> None:
    """From 2.29 on by the bytes of a peer; what names no NCCL is an earlier one."""
    assert by_peer == exchanges_by_peer(software)


def test_a_small_message_moves_the_starts_of_all_protocols() -> None:
    """One node's starts are slow together: by LL, by Simple, and of exchanges."""
    links = collective_links(load_target("dgx-a100"), several=False)
    slow, p = attrs.evolve(links, start=2.0), collective_parameters()
    asked = [
        _kernel("all_reduce", 2**10, 2),
        _kernel("all_gather", 2**22, 2),
        _kernel("all_to_all", 2**24, 8),
    ]
    c = Collectives.of(KernelTable(asked))

    more_s = collective_seconds(c, slow, p) - collective_seconds(c, links, p)
    start_s = p.start_ns * links.cycle_s
    assert (more_s > 0.99 * start_s).all()
    assert (more_s[1:] > 1.5 * start_s).all()


def test_a_hop_of_ll_does_not_shrink_with_the_clock() -> None:
    """A step takes more than the link's 0.6 us, on however fast a clock."""
    links, p = (
        collective_links(load_target("dgx-h100"), several=False),
        collective_parameters(),
    )
    fast = attrs.evolve(links, cycle_s=links.cycle_s / 1000)
    c = Collectives.of(KernelTable([_kernel("all_gather", 1024, n) for n in (2, 8)]))

    two, eight = collective_seconds(c, fast, p)
    assert 6 * 0.6e-6 == pytest.approx(eight - two, rel=0.02)


def test_a_gpu_without_a_network_has_one_node() -> None:
    """Several nodes of a card that nobody has named a system of are refused."""
    with pytest.raises(PerfcError, match="l4 has no network: name a system"):
        _priced(load_target("l4"), _kernel(ranks=16, nodes=2))


def test_intervals_say_what_was_measured() -> None:
    """A measured curve, a measured system, another one, a switch: wider each time."""
    h100, b200 = load_target("dgx-h100"), load_target("dgx-b200")
    known = _priced(h100, _kernel("all_gather"))
    near = _priced(h100, _kernel("broadcast"))
    unseen = _priced(b200, _kernel("all_gather"))
    switch = _priced(h100, _kernel(size=2**24, dtype="bf16"))

    sigmas = [
        float(np.hypot(e.sigma_shared[0], e.sigma_independent[0]))
        for e in (known, near, unseen, switch)
    ]
    assert sigmas == sorted(sigmas)
    assert len(set(sigmas)) == len(sigmas)
    assert [Provenance.FITTED] == [*known.provenance]
    assert [Provenance.ANALYTIC] == [*unseen.provenance]


def test_rows_are_followed_where_they_lie() -> None:
    """Rows twice as slow as modelled make their own sizes so, and others slower."""
    target, p = load_target("dgx-b200"), collective_parameters()
    links = collective_links(target, several=False)
    sizes = [2.0**octave for octave in range(10, 30, 2)]
    kernels = [_kernel("all_gather", size) for size in sizes]
    rows = weighed(
        Collectives.of(KernelTable(kernels)), np.full(len(sizes), np.log(2)), links, p
    )
    measured = attrs.evolve(target, collectives=rows.measured())
    asked = [kernels[3], _kernel("all_gather", 3 * sizes[3]), _kernel("all_to_all")]

    ratio = _priced(measured, *asked).seconds / _priced(target, *asked).seconds
    assert ratio[:2].tolist() == pytest.approx([2, 2], rel=0.05)
    assert 1.1 < ratio[2] < 2


@pytest.mark.parametrize("target", ["dgx-a100", "dgx-h100"])
@pytest.mark.parametrize("op", ["all_gather", "all_to_all", "reduce_scatter"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_measured_sizes_take_no_less_than_smaller_ones(
    target: str, op: str, ranks: int
) -> None:
    """From a measured size to the next, though single runs went the other way."""
    kernels = [_kernel(op, 2.0**octave, ranks) for octave in range(9, 30, 2)]
    times = _priced(load_target(target), *kernels).seconds

    assert (np.diff(times) >= -1e-9 * times[1:]).all()


def test_a_slow_run_does_not_make_more_bytes_faster() -> None:
    """Rows of one curve that fall are pooled; what lies between them is held there."""
    target, p = load_target("dgx-b200"), collective_parameters()
    links = collective_links(target, several=False)
    sizes = [2.0**octave for octave in range(10, 20, 2)]
    kernels = [_kernel("all_to_all", size) for size in sizes]
    off = np.log([1.0, 1.5, 1.0, 1.5, 1.0])
    rows = weighed(Collectives.of(KernelTable(kernels)), off, links, p)
    asked = [_kernel("all_to_all", 2.0 ** (octave / 4)) for octave in range(40, 73)]
    c = Collectives.of(KernelTable(asked))

    modelled = collective_seconds(c, links, p)
    loose = modelled * np.exp(rows.log_factor(c, links, p))
    times = _priced(attrs.evolve(target, collectives=rows.measured()), *asked).seconds
    assert np.diff(np.log(loose)).min() < -0.035
    assert np.diff(np.log(times[::8])).min() > -1e-9
    assert (times[:8] <= times[8] * (1 + 1e-9)).all()


def test_simple_comes_near_its_rate_slowly() -> None:
    """Four times the bytes of 8 MB take less than four times as long, of 2 GB nearly.

    On four GPUs of an A100 node, where both go by Simple.
    """
    sizes = (2**23, 2**25, 2**31, 2**33)
    times = _seconds("dgx-a100", *(_kernel("all_gather", size, 4) for size in sizes))

    assert times[1] / times[0] < 3
    assert 3.8 < times[3] / times[2] < 4


def test_two_rows_move_every_collective() -> None:
    """A short and a long row tell of starts and rates, so of ops that they are not."""
    target, p = load_target("dgx-b200"), collective_parameters()
    links = collective_links(target, several=False)
    two = [_kernel(size=2**12, ranks=2), _kernel(size=2**29, ranks=4)]
    off = np.log([1.5, 1.0])
    rows = weighed(Collectives.of(KernelTable(two)), off, links, p)
    measured = attrs.evolve(target, collectives=rows.measured())
    asked = [_kernel("reduce_scatter", 2**11, 4), _kernel("all_gather", 2**29, 4)]

    ratio = _priced(measured, *asked).seconds / _priced(target, *asked).seconds
    assert 1.2 < ratio[0] < 1.5
    assert 0.97 < ratio[1] < 1.03


def test_rows_survive_their_file() -> None:
    """What is written is read back, to the digits written."""
    texts = ["all_reduce fp16 4096 2 1 2 -1.5", "all_to_all - 8192 16 2 8 0.25"]

    assert texts == collective_rows_of(texts).texts()


@pytest.mark.parametrize(
    "text",
    ["all_reduce fp16 4096 2 1 2", "gemm fp16 1 2 1 2 0", "all_reduce fp16 0 2 1 2 0"],
)
def test_a_row_that_cannot_be_is_refused(text: str) -> None:
    """Missing cells, another op, no bytes."""
    with pytest.raises(ValueError, match=r"."):
        collective_rows_of([text])


@pytest.mark.parametrize(("size", "share"), [(2**30, 0.84), (2**32, 0.85)])
def test_an_exchange_in_a_quad_waits_for_single_links(size: int, share: float) -> None:
    """Four V100 of a cube mesh: a quarter of the bytes over one link of 25 GB/s.

    The more bytes, the nearer Simple comes to the rate.
    """
    seconds = _seconds("p3.16xlarge", _kernel("all_to_all", size, 4))[0]

    assert size / 4 / 25e9 < seconds < size / 4 / 25e9 / share


def test_fewer_members_of_a_mesh_have_fewer_links() -> None:
    """Two GPUs of four that are joined each to each have a third of the links."""
    two, four = _seconds("polaris", *(_kernel("all_to_all", 2**30, n) for n in (2, 4)))

    assert two == pytest.approx(2 * four, rel=0.05)


def test_a_quad_of_v100_has_four_of_six_links() -> None:
    """In the cube mesh rings of four GPUs get less than those of eight."""
    target = load_target("dgx-v100")
    links, p = collective_links(target, several=False), collective_parameters()
    c = Collectives.of(KernelTable([_kernel(size=2**30, ranks=n) for n in (4, 8)]))
    rates = c.wire / collective_seconds(c, links, p)

    assert 1.3 < rates[1] / rates[0] < 1.6
