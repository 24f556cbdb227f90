"""Wave scaling: what a launch alone says of another GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfc.costmodels import Device, load_target
from perfc.costmodels.machine import blocks_per_sm, memory_boundedness, wave_ratio
from perfc.ir import Work

V100 = load_target("v100").device
A100 = load_target("a100").device
T4 = load_target("t4").device

_COUNTS = st.integers(1, 1 << 20)


@pytest.mark.parametrize(
    ("device", "threads", "registers", "shared_bytes", "blocks"),
    [
        (V100, 1024, 0, 0, 2),
        (V100, 256, 32, 0, 8),
        (V100, 256, 128, 0, 2),
        (V100, 128, 72, 13824, 7),
        (V100, 32, 0, 0, 32),
        (T4, 32, 0, 0, 16),
        (V100, 128, 0, 1 << 30, 1),
    ],
)
def test_blocks_of_an_sm(
    device: Device, threads: int, registers: int, shared_bytes: int, blocks: int
) -> None:
    """Threads, registers, shared memory and a bound decide, as NVIDIA's table says."""
    assert blocks == blocks_per_sm(device, threads, registers, shared_bytes)


def test_what_waits_for_memory() -> None:
    """Gamma falls from 1 to 0 as flops per byte rise; half of it is at the ridge."""
    ridge = int(V100.flops_per_s["fp32"] / V100.memory.bytes_per_s)

    assert memory_boundedness(V100, None) == 1
    assert memory_boundedness(V100, Work(0, 8, 0)) == 1
    assert memory_boundedness(V100, Work(8, 0, 0)) == 0
    at_ridge = Work(ridge * 1_000_000, 1_000_000, 0)
    assert memory_boundedness(V100, at_ridge) == pytest.approx(0.5, abs=0.03)
    assert memory_boundedness(V100, Work(ridge * 100, 1, 0)) < 0.01


@given(blocks=_COUNTS, threads=st.integers(1, 1024), flops=_COUNTS, moved=_COUNTS)
def test_the_same_gpu_takes_as_long(
    blocks: int, threads: int, flops: int, moved: int
) -> None:
    """Whatever a kernel is, nothing changes on the GPU it was measured on."""
    work = Work(flops, moved, 0)
    ratio = wave_ratio(V100, V100, blocks=blocks, threads=threads, work=work)

    assert ratio == pytest.approx(1)


def test_many_blocks_of_unknown_work_follow_the_memory() -> None:
    """Without flops, time goes with the rate of memory, as in Habitat."""
    ratio = wave_ratio(V100, A100, blocks=1 << 20, threads=256)

    rates = V100.memory.bytes_per_s / A100.memory.bytes_per_s
    assert ratio == pytest.approx(rates)


def test_less_than_a_wave_waits_for_nobody() -> None:
    """A few blocks of unknown work take as long; such that compute follow the clock."""
    assert wave_ratio(V100, A100, blocks=8, threads=256) == 1
    computing = wave_ratio(V100, A100, blocks=8, threads=256, work=Work(1, 0, 0))
    assert computing == pytest.approx(V100.sm_clock_hz / A100.sm_clock_hz)
