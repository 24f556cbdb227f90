"""Which protocol NCCL chooses, and where it changes to the next."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perfc.costmodels import (
    Collectives,
    collective_links,
    collective_parameters,
    collective_seconds,
    load_target,
)
from perfc.costmodels.collective_choice import (
    by_protocol,
    goes_by_ll,
    ll_threads,
    ring_switches,
)

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
    """The power of two behind the last that goes by LL takes 1.5 times as long or more.

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


def test_exchanges_go_by_ll_up_to_16_kib_a_peer() -> None:
    """Of eight 128 KiB in all; send and receive have one peer."""
    sizes = (2.0**14, 2.0**14 + 1, 2.0**17, 2.0**17 + 8)

    all_to_all = goes_by_ll(_columns("all_to_all", 8, *sizes)).tolist()
    send_recv = goes_by_ll(_columns("send_recv", 2, *sizes)).tolist()

    assert [True, True, True, False] == all_to_all
    assert [True, False, False, False] == send_recv


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
