"""What collectives take from others while they run."""

from __future__ import annotations

import numpy as np
import pytest

from perfc.costmodels import KernelTable, load_target
from perfc.costmodels.collectives import CollectiveShares, collective_shares
from perfc.ir import Kernel, PerfcError, Work, record_of


def _shares(
    target: str,
    op: str,
    seconds: float,
    *,
    size: int = 2**28,
    ranks: int = 8,
    nodes: int = 1,
) -> CollectiveShares:
    params = record_of({"bytes": size, "ranks": ranks, "nodes": nodes})
    kernel = Kernel(op, "fp32", "", params, Work(0, size, size))
    return collective_shares(
        KernelTable([kernel]), np.array([seconds]), load_target(target)
    )


@pytest.mark.parametrize(
    ("target", "ranks", "blocks"),
    [("p3.16xlarge", 4, 8), ("dgx-a100", 8, 24), ("dgx-h100", 8, 32), ("l4", 2, 2)],
)
def test_blocks_follow_from_links(target: str, ranks: int, blocks: int) -> None:
    """Two for each link of 25 GB/s, 32 at most; traces of a quad of V100 show 8."""
    held = _shares(target, "all_reduce", 1e-3, ranks=ranks).held.item()

    assert blocks == round(held * load_target(target).device.sm_count)


def test_an_all_reduce_at_the_rate_of_its_links_takes_them_all() -> None:
    """7/4 of the bytes leave each of eight GPUs; at half the rate half is taken."""
    seconds = 7 / 4 * 2**28 / 300e9

    assert [1.0, 0.5] == pytest.approx(
        [
            _shares("dgx-a100", "all_reduce", t).link.item()
            for t in (seconds, 2 * seconds)
        ]
    )


def test_only_what_leaves_a_node_takes_nics() -> None:
    """On one node nothing does; one GPU on each of two nodes needs no link in it."""
    inside = _shares("dgx-a100", "all_gather", 1e-3)
    across = _shares("dgx-a100", "all_gather", 1e-1, ranks=2, nodes=2)

    assert (0.0, True) == (inside.network.item(), inside.link.item() > 0)
    assert (0.0, True) == (across.link.item(), across.network.item() > 0)


def test_sums_are_told_apart() -> None:
    """All-reduce and reduce-scatter add up; a sum moves more through memory."""
    ops = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv")

    sums = [_shares("dgx-a100", op, 1e-3).sums.item() for op in ops]
    memory = [_shares("dgx-a100", op, 1e-2).memory.item() for op in ops[1:3]]

    assert [True, True, False, False, False] == sums
    assert pytest.approx(1.5) == memory[0] / memory[1]


def test_nothing_is_more_than_all() -> None:
    """Shares are at most 1, and 0 of a collective that takes no time and no bytes."""
    fast = _shares("dgx-a100", "all_reduce", 1e-9)
    empty = _shares("dgx-a100", "all_reduce", 0.0, size=0)

    assert (1.0, 1.0) == (fast.link.item(), fast.memory.item())
    assert (0.0, 0.0) == (empty.link.item(), empty.memory.item())


def test_nodes_without_a_network_are_refused() -> None:
    """A GPU that no maker joins by a network has no members on other nodes."""
    with pytest.raises(PerfcError, match="no network"):
        _shares("l4", "all_reduce", 1e-3, ranks=2, nodes=2)
