"""What convolutions on a CPU do besides GEMMs: oneDNN takes channels by vectors.

Channels that fill no whole vectors are padded, and operands are brought into that order
and back. Where every channel is a group of its own a vector holds as many channels, and
nothing is multiplied by matrices. Other groups are not padded: a vector holds a block
of channels of one group, and its other lanes idle. Where no block fits, each group is a
GEMM of its own, whose left operand is put together for it (`BLOCKS`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from perfc.costmodels.kernels import Floats, KernelTable
from perfc.costmodels.machine import FORWARD
from perfc.ir import Kernel

FEW = 4
"""Input channels, of images, up to which they are taken as they lie."""

NATIVE_ELEMENTS, NATIVE_TAPS = 20480, 3
"""Largest single image, and window along an axis, of which PyTorch takes its own."""

BLOCKS: Mapping[int, tuple[int, ...]] = MappingProxyType({16: (16, 8, 4)})
"""Channels of a group that a vector may hold, by its lanes; else as many as it has.

Both of a group's numbers of channels are multiples of a block; which oneDNN takes is
seen with `ONEDNN_VERBOSE=1` (`src/cpu/x64/jit_avx512_core_conv_kernel.cpp`).
"""

LEAST_BLOCK_OF_WEIGHTS = 8
"""Least channels of a group that a vector holds, for gradients of weights."""

_CONVOLUTIONS = frozenset({"conv2d", "conv3d"})


class _Shares(NamedTuple):
    """What a convolution does, over what its flops take at the cores' rate.

    Attributes:
        grouped: 1 where every channel is a group.
        grouped_rest: 1 where those channels fill no whole vectors, too.
        idle_lanes: Lanes of a vector without a channel of the group, over those with.
        group_half: One over a group's columns where it is a GEMM of its own; as of
            `n_half`, the coefficient is the columns that reach half of the rate.
        padded_in: Padded input channels over those that there are.
        padded_out: The same of output channels.

    """

    grouped: float = 0.0
    grouped_rest: float = 0.0
    idle_lanes: float = 0.0
    group_half: float = 0.0
    padded_in: float = 0.0
    padded_out: float = 0.0

    @property
    def scattered(self) -> bool:
        """Whether channels that fill no whole vectors are brought into order."""
        return self.grouped_rest + self.padded_in + self.padded_out > 0


_NOTHING = _Shares()


def is_depthwise(kernel: Kernel) -> bool:
    """Whether it is a convolution of which every channel is a group of its own."""
    return _groups(kernel) > 1 and _channels(kernel) == (1, 1)


def conv_amounts(kernels: KernelTable, peak_s: Floats, lanes: int) -> dict[str, Floats]:
    """Return work of groups, padding and reorders of convolutions, 0 of others.

    Seconds at coefficient 1, shape (kernels,) each.

    Args:
        kernels: Of any op.
        peak_s: What each takes at the cores' rate, shape (kernels,).
        lanes: fp32 numbers of a vector.

    """
    shares = [_shares(kernel, lanes) for kernel in kernels.kernels]
    columns = np.array(shares).reshape(-1, len(_Shares._fields)).T
    named = zip(_Shares._fields, columns, strict=True)
    return {
        **{name: peak_s * share for name, share in named},
        "reorder_us": np.array([each.scattered for each in shares]) * 1e-6,
        "library_us": np.array([_uses_library(k) for k in kernels.kernels]) * 1e-6,
    }


def _groups(kernel: Kernel) -> int:
    """Return how many groups a convolution has, 1 of other kernels."""
    return kernel.params.integer("groups", 1) if kernel.op in _CONVOLUTIONS else 1


def _channels(kernel: Kernel) -> tuple[int, int]:
    params, groups = kernel.params, _groups(kernel)
    return params.integer("c_in") // groups, params.integer("c_out") // groups


def _uses_library(kernel: Kernel) -> bool:
    """Whether oneDNN computes it, which begins slowly: all but one small image.

    `use_mkldnn` in `aten/src/ATen/native/Convolution.cpp`.
    """
    if kernel.op not in _CONVOLUTIONS:
        return False
    params = kernel.params
    image = params.integer("c_in") * math.prod(_axes(kernel, "size"))
    small = params.integer("n", 1) == 1 and image <= NATIVE_ELEMENTS
    grouped, wide = _groups(kernel) > 1, min(_axes(kernel, "kernel")) > NATIVE_TAPS
    return not small or grouped or wide


def _axes(kernel: Kernel, name: str) -> tuple[int, ...]:
    """Return a size of each axis of images, which is one number where all are alike."""
    value = kernel.params.get(name, 1)
    if isinstance(value, tuple):
        return kernel.params.integers(name)
    return (kernel.params.integer(name, 1),) * (3 if kernel.op == "conv3d" else 2)


def _shares(kernel: Kernel, lanes: int) -> _Shares:
    if kernel.op not in _CONVOLUTIONS:
        return _NOTHING
    c_in, c_out = _channels(kernel)
    if is_depthwise(kernel):
        rest = kernel.params.integer("c_out") % lanes > 0
        return _Shares(grouped=1.0, grouped_rest=float(rest))
    if _groups(kernel) > 1:
        # The channels of a group that a vector holds; 0: none does.
        channels = math.gcd(*_channels(kernel))
        of_weights = kernel.params.get("phase", FORWARD) == "backward_weight"
        least = LEAST_BLOCK_OF_WEIGHTS if of_weights else 1
        blocks = BLOCKS.get(lanes, (lanes,))
        block = next((b for b in blocks if b >= least and channels % b == 0), 0)
        if not block:
            return _Shares(group_half=1 / c_out)
        return _Shares(idle_lanes=lanes / block - 1)
    inside = _padded(c_in, lanes) if c_in >= FEW else 0.0
    return _Shares(padded_in=inside, padded_out=_padded(c_out, lanes))


def _padded(channels: int, lanes: int) -> float:
    return math.ceil(channels / lanes) * lanes / channels - 1
