"""Whole calls of convolutions on Hopper, in PyTorch's usual layout.

cuDNN's kernels for tensor cores want the channels of a pixel side by side: images,
filters and results are moved to that layout and back by kernels of their own; its
kernels without tensor cores are Maxwell's to Ampere's. A call takes

    t = floor + slower * (kernel - floor) + moved * bytes / memory rate
        + clocks * flops / (SMs * clock rate) + late

with numbers by what is called, of H100 (`fitted/constants/conv.toml`): within 1.4 to 2
times, where the kernel alone was up to twenty times too fast. Other GPUs have rows of
fp32 only, which have no layouts. Depthwise kernels are PyTorch's own and the same
everywhere: the numbers of theirs are taken for every GPU that runs CUDA.
"""

from __future__ import annotations

from typing import NamedTuple

from perfc.costmodels.constants import constants
from perfc.costmodels.kernels import Flags, Maths, Number, Signatures
from perfc.costmodels.machine import Target

_CONSTANTS = constants("conv")

SIGMA = _CONSTANTS.number("sigma_call")
"""Independent, of such a call."""

_ALIGNED = 8
"""Channels of 16 bits that a load of 16 bytes holds; of tf32 half as many."""


class Call(NamedTuple):
    """What a call takes beside its GEMM."""

    slower: float
    moved: float
    """How often its operands are read and written more than they must."""
    late_s: float
    clocks: float = 0.0
    """Clocks of an SM for each flop, of kernels that do not reuse what they load."""


def _call(name: str) -> Call:
    return Call(**_CONSTANTS.table(f"call_{name}"))


_WINDOW = _call("window")
_ODD_WINDOW = _call("odd_window")
"""Call with a number of channels that does not fill loads of 16 bytes."""
_POINT = _call("point")
_POINT_BACKWARD = _call("point_backward")
"""One pixel after the other: a plain GEMM, in any layout."""
_SIMT = _call("simt")
_SIMT_BACKWARD_DATA = _call("simt_backward_data")
_SIMT_BACKWARD_WEIGHT = _call("simt_backward_weight")
_GROUPS = _call("groups")
_GROUPS_BACKWARD = _call("groups_backward")
"""Calls with one channel a group: each thread loads the window of its pixel."""


def call_seconds(
    seconds: Number,
    kernels: Signatures[Number],
    simt: Flags | bool,
    target: Target,
    maths: Maths[Number],
) -> Number:
    """Return the seconds of calls whose kernels alone take *seconds*.

    Args:
        seconds: By the formula of a GEMM, or an algorithm.
        kernels: What they are.
        simt: Whether they compute without tensor cores.
        target: One of `PERFC_ROWS`; of depthwise kernels any that runs CUDA.
        maths: Of one kernel or of many.

    """
    device = target.device
    floor_s = device.kernel_floor_s
    slower, moved, late_s, clocks = (
        _chosen(field, kernels, simt, maths) for field in range(len(Call._fields))
    )
    again_s = moved * kernels.bytes / device.memory.bytes_per_s
    clocked_s = clocks * kernels.flops / (device.sm_count * device.sm_clock_hz)
    own_s = slower * (seconds - floor_s) + clocked_s
    return floor_s + own_s + again_s + late_s


def _chosen(
    field: int,
    kernels: Signatures[Number],
    simt: Flags | bool,
    maths: Maths[Number],
) -> Number:
    """Return one number of the call that each kernel is."""
    phase, where = kernels.text("phase"), maths.where
    step = where(kernels.math == "tf32", _ALIGNED / 2, _ALIGNED)
    odd = (kernels.param("c_in") % step > 0) | (kernels.param("c_out") % step > 0)
    point = (kernels.param("kernel") <= 1) & (kernels.param("stride") <= 1)
    found = where(odd, _ODD_WINDOW[field], _WINDOW[field])
    point_now = where(phase == "forward", _POINT[field], _POINT_BACKWARD[field])
    found = where(point, point_now, found)
    backward = where(
        phase == "backward_weight",
        _SIMT_BACKWARD_WEIGHT[field],
        _SIMT_BACKWARD_DATA[field],
    )
    plain = where(phase == "forward", _SIMT[field], backward)
    found = where(simt, plain, found)
    forward = phase == "forward"
    grouped = where(forward, _GROUPS[field], _GROUPS_BACKWARD[field])
    groups = kernels.param("groups")
    depthwise = (groups > 1) & (kernels.param("c_in") == groups)
    return where(depthwise, grouped, found)
