"""Groups of convolutions on a CPU, as oneDNN's kernels take them.

Which kernel takes what was read off `ONEDNN_VERBOSE=1` of PyTorch 2.13.
"""

from __future__ import annotations

import attrs
import pytest

from perfc.costmodels import KernelTable, cost_models, load_target, price
from perfc.costmodels.cpu.amounts import amounts_of
from perfc.ir import AttrValue, Kernel, Record
from perfc.measurements import Measurement, kernel_of

AVX2 = load_target("cpu")
AVX512 = attrs.evolve(load_target("cpu", {"gpu.lanes_per_sm": "32"}), unset=None)
"""A processor of its own."""
TARGETS = {8: AVX2, 16: AVX512}
CHANNELS = 192


def _kernel(groups: int, per_in: int, per_out: int, **more: AttrValue) -> Kernel:
    """Return a convolution of images by so many channels in and out of each group."""
    params: dict[str, AttrValue] = {
        "n": 4,
        "c_in": groups * per_in,
        "c_out": groups * per_out,
        "kernel": 3,
        "size": 28,
        "stride": 1,
        "padding": 1,
        "groups": groups,
        **more,
    }
    row = Measurement(
        target="cpu",
        op="conv2d",
        dtype="fp32",
        params=Record(params),
        latency_us=1.0,
        timing="event",
        source="made up",
    )
    return kernel_of(row)


def _shares(lanes: int, kernel: Kernel) -> dict[str, float]:
    """Return each term over what the flops take at the cores' rate."""
    target = TARGETS[lanes]
    rate = target.device.flops_per_s["fp32"]
    amounts = amounts_of(KernelTable([kernel]), target)
    return {
        name: float(amount[0]) * rate / kernel.work.flops
        for name, amount in amounts.items()
    }


@pytest.mark.parametrize(
    ("lanes", "per_in", "per_out", "phase", "idle"),
    [
        (16, 16, 16, "forward", 0),
        (16, 48, 128, "forward", 0),
        (16, 8, 8, "forward", 1),
        (16, 32, 24, "backward_data", 1),
        (16, 24, 32, "backward_weight", 1),
        (16, 4, 4, "forward", 3),
        (16, 20, 80, "backward_data", 3),
        (8, 8, 8, "forward", 0),
        (8, 24, 16, "backward_weight", 0),
    ],
)
def test_a_vector_holds_channels_of_one_group(
    lanes: int, per_in: int, per_out: int, phase: str, idle: float
) -> None:
    """As many as divide those of the group, in and out; its other lanes idle."""
    found = _shares(lanes, _kernel(6, per_in, per_out, phase=phase))

    assert pytest.approx(idle) == found["idle_lanes"]
    assert pytest.approx(1) == found["slowdown"]
    names = ("grouped", "group_half", "padded_in", "padded_out", "reorder_us")
    assert {0.0} == {found[name] for name in names}


@pytest.mark.parametrize(
    ("lanes", "per_in", "per_out", "phase"),
    [
        (16, 6, 6, "forward"),
        (16, 16, 6, "backward_data"),
        (16, 1, 2, "forward"),
        (16, 4, 4, "backward_weight"),
        (16, 20, 80, "backward_weight"),
        (8, 4, 4, "forward"),
        (8, 12, 16, "forward"),
    ],
)
def test_groups_that_no_vector_holds_are_gemms_of_their_own(
    lanes: int, per_in: int, per_out: int, phase: str
) -> None:
    """What is put together for one is used by the columns of its group alone."""
    found = _shares(lanes, _kernel(6, per_in, per_out, phase=phase))

    assert pytest.approx(1 / per_out) == found["group_half"]
    assert pytest.approx(1) == found["slowdown"]
    assert 0.0 == found["idle_lanes"] == found["grouped"] == found["padded_out"]


def test_groups_share_a_call() -> None:
    """Half of their rate is reached at as many columns as without groups."""
    one, four = (_kernel(groups, CHANNELS // groups, 48) for groups in (1, 4))
    found = [_shares(8, kernel)["n_half"] for kernel in (one, four)]

    assert [1 / 48, 1 / CHANNELS] == pytest.approx(found)


def test_channels_of_groups_decide_how_long_they_take() -> None:
    """192 by 4, 8 or 16 two cores with AVX-512 took 0.7 ms; 2.1 by 6, 6.2 by all."""
    kernels = [_kernel(CHANNELS // per, per, per) for per in (4, 6, 8, 16, CHANNELS)]
    four, six, eight, full, all_in_one = price(kernels, AVX512, cost_models()).seconds

    assert pytest.approx([full, full], rel=0.1) == [four, eight]
    assert six > 2.5 * eight
    assert pytest.approx(8.4, rel=0.2) == all_in_one / full
