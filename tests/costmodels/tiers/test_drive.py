"""Drives under load: what was measured, and the laws of a queue."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.costmodels.tiers.made import TIERS, a_tier

from perfc.costmodels.machine import Tier
from perfc.costmodels.sheets import load_memory
from perfc.costmodels.tiers import (
    P99,
    in_flight,
    latency_s,
    load_within,
    reads_per_s,
    tier_use,
)
from perfc.ir import PerfcError

SHARE = st.floats(0.001, 0.999)


@pytest.mark.parametrize(
    ("memory", "queue", "measured"),
    [
        ("optane-p4800x", 1, 108_300),
        ("optane-p4800x", 16, 584_800),
        ("p3700-800g", 1, 12_800),
        ("p3700-800g", 16, 167_200),
    ],
)
def test_shipped_drives_do_what_was_measured(
    memory: str, queue: int, measured: float
) -> None:
    """AnandTech's random reads of 4 KiB, within 7 %."""
    assert measured == pytest.approx(reads_per_s(load_memory(memory), queue), rel=0.07)


@given(tier=TIERS, queue=st.floats(0, 1e4), more=st.floats(1, 100))
def test_more_reads_in_flight_never_end_fewer(
    tier: Tier, queue: float, more: float
) -> None:
    """Rates rise with the queue, and stay below both of their bounds."""
    few, many = reads_per_s(tier, queue), reads_per_s(tier, queue * more)

    assert few <= many * (1 + 1e-12)
    bound = min(tier.reads_per_s, queue / tier.read_latency_s)
    assert few <= bound * (1 + 1e-12)


@given(tier=TIERS, share=SHARE, more=st.floats(1, 1000))
def test_latency_rises_with_load_and_from_the_idle_one(
    tier: Tier, share: float, more: float
) -> None:
    """An idle drive takes its own latency; no load shortens it."""
    load = share * tier.reads_per_s

    assert tier.read_latency_s == latency_s(tier, 0)
    assert tier.read_latency_s <= latency_s(tier, load) * (1 + 1e-12)
    assert latency_s(tier, load / more) <= latency_s(tier, load) * (1 + 1e-12)


@given(tier=TIERS, share=SHARE)
def test_load_and_queue_say_the_same(tier: Tier, share: float) -> None:
    """The reads in flight at a load end as many a second as the load."""
    load = share * tier.reads_per_s

    assert load == pytest.approx(reads_per_s(tier, in_flight(tier, load)), rel=1e-6)


@given(tier=TIERS, share=SHARE)
def test_the_load_within_a_latency_has_that_latency(tier: Tier, share: float) -> None:
    """Each is the other's inverse, where the drive has a knee."""
    assume(not math.isinf(tier.knee) and share**tier.knee > 1e-9)
    target = latency_s(tier, share * tier.reads_per_s)

    assert share * tier.reads_per_s == pytest.approx(
        load_within(tier, target), rel=1e-5
    )


@given(tier=TIERS, load=st.floats(0, 900), faster=st.floats(1, 100))
def test_a_faster_drive_never_takes_longer(
    tier: Tier, load: float, faster: float
) -> None:
    """Latency at a load falls with the rate when saturated, and with that when idle."""
    better = a_tier(
        reads_per_s=tier.reads_per_s * faster,
        read_latency_s=tier.read_latency_s / faster,
        knee=tier.knee,
    )

    assert latency_s(better, load) <= latency_s(tier, load) * (1 + 1e-12)


@pytest.mark.parametrize("load", [5e5, 6e5, -1])
def test_a_load_that_a_drive_cannot_do_is_refused(load: float) -> None:
    """The line has what is asked, and what the drive can do."""
    with pytest.raises(PerfcError, match=r"expected fewer than 500,000, which is all"):
        latency_s(a_tier(), load)


def test_a_target_below_the_idle_latency_allows_no_load() -> None:
    """Nor does one at it."""
    assert 0 == load_within(a_tier(), 7e-5) == load_within(a_tier(), 8e-5)


def test_p99_is_that_of_the_sheet_or_refused() -> None:
    """It grows with the load as the mean does; without it a line says what to do."""
    tier = a_tier(read_latency_p99_s=1.2e-4)

    assert 1.2e-4 == latency_s(tier, 0, P99)
    assert 1.5 == pytest.approx(latency_s(tier, 4e5, P99) / latency_s(tier, 4e5))
    with pytest.raises(PerfcError, match="drive has no latency at p99: add read_lat"):
        latency_s(a_tier(), 0, P99)
    with pytest.raises(PerfcError, match="expected at least 0"):
        reads_per_s(tier, -1)
    assert 0 == tier_use(tier, [], 100).reads_per_s
