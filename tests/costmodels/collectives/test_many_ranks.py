"""Collectives of many nodes: what grows with their logarithm, and what with them."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfc
from perfc.costmodels import COLLECTIVES, load_target, price
from perfc.costmodels.collectives import COLLECTIVE
from perfc.costmodels.collectives.collective import CollectiveModel
from perfc.costmodels.kernels import Floats
from perfc.ir import Kernel, Work, record_of

BARE = attrs.evolve(COLLECTIVE, measured=False)
DOUBLINGS = range(1, 16)
SYSTEMS = st.sampled_from(["dgx-v100", "dgx-a100", "dgx-h100", "gb200-nvl72"])
MEMBERS = st.sampled_from([1, 2, 4, 8])
A_STEP_S = 30e-6
"""More than two steps over a network take in NCCL's table, by any protocol."""


def _seconds(
    system: str,
    op: str,
    sizes: list[int],
    members: int,
    nodes: list[int],
    model: CollectiveModel = COLLECTIVE,
) -> Floats:
    kernels = [
        Kernel(
            op,
            "bf16",
            "",
            record_of({"bytes": size, "ranks": members * count, "nodes": count}),
            Work(0, size, size),
        )
        for size, count in zip(sizes, nodes, strict=True)
    ]
    return price(kernels, load_target(system), [model]).seconds


def _by_nodes(
    system: str, op: str, size: int, members: int, model: CollectiveModel = COLLECTIVE
) -> Floats:
    nodes = [2**doubling for doubling in DOUBLINGS]
    return _seconds(system, op, [size] * len(nodes), members, nodes, model)


@given(system=SYSTEMS, members=MEMBERS, size=st.integers(2, 2**16))
def test_small_sums_take_a_step_longer_on_twice_the_nodes(
    system: str, members: int, size: int
) -> None:
    """The latency of an all-reduce grows with the logarithm of the nodes."""
    more_s = np.diff(_by_nodes(system, "all_reduce", size, members))

    assert (more_s > 0).all()
    assert (more_s < A_STEP_S).all()


@given(
    op=st.sampled_from(sorted({*COLLECTIVES} - {"send_recv"})),
    system=SYSTEMS,
    members=MEMBERS,
    size=st.integers(2, 2**34),
)
def test_more_nodes_take_no_less(op: str, system: str, members: int, size: int) -> None:
    """Whatever algorithm is the fastest, before rows of ten nodes correct it."""
    assert (np.diff(_by_nodes(system, op, size, members, BARE)) > 0).all()


@given(
    op=st.sampled_from(sorted(COLLECTIVES)),
    system=SYSTEMS,
    members=MEMBERS,
    nodes=st.integers(2, 20_000),
    size=st.integers(2**10, 2**34),
)
def test_no_step_where_algorithms_change(
    op: str, system: str, members: int, nodes: int, size: int
) -> None:
    """Across nodes a thousandth more bytes take about a thousandth longer at most."""
    less_s, more_s = _seconds(
        system, op, [size, size + size // 1000], members, [nodes, nodes]
    )

    assert less_s <= more_s <= less_s * 1.002


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_members_alone_on_nodes_gather_by_trees(op: str) -> None:
    """NCCL's PAT: 4 us for a doubling, 2.8 for a member; a ring's step takes 5."""
    few, many = nodes = [2**9, 2**13]
    alone_s, pairs_s = (
        np.diff(_seconds("dgx-a100", op, [1024] * 2, members, nodes, BARE))
        for members in (1, 2)
    )

    assert 4 * 4e-6 + 2.8e-6 * (many - few) == pytest.approx(alone_s[0], rel=0.001)
    assert (2.7e-6 + 0.6e-6) * (many - few) == pytest.approx(pairs_s[0], rel=0.001)


def test_switches_stand_for_chains_in_large_nodes() -> None:
    """A sum on 72 GPUs a node waits for no chain of 72, as it does without."""
    size, chain_s = 2**27, 2 * 71 * 4e-6
    (switched,) = _seconds("gb200-nvl72", "all_reduce", [size], 72, [16])
    kernel = {"bytes": size, "ranks": 72 * 16, "nodes": 16}
    narrow = Kernel("all_reduce", "int8", "", record_of(kernel), Work(0, size, size))
    (chained,) = price([narrow], load_target("gb200-nvl72"), [COLLECTIVE]).seconds

    assert switched < chained - chain_s / 2


@pytest.mark.parametrize(
    ("pass_", "grows"),
    [
        ("data-parallel{{ranks={}}}", False),
        ("fsdp{{ranks={},strategy=hybrid}}", False),
        ("fsdp{{ranks={}}}", True),
    ],
)
def test_a_step_on_sixteen_times_the_ranks(pass_: str, *, grows: bool) -> None:
    """It takes a few percent longer where sums are all that goes over the network.

    Gathers over all ranks go by rings that visit each: FSDP's own reason for hybrids.
    """
    few, many = (
        perfc.analyze(
            "gpt2:layers=2,seq=128",
            target="dgx-h100",
            batch=8,
            mode="training",
            passes=[pass_.format(ranks)],
        ).time_us
        for ranks in (1024, 16_384)
    )

    assert few < many
    assert grows == (many > 1.1 * few)
