"""What convolutions on a CPU do besides products: oneDNN takes channels by vectors.

Channels that fill no whole vectors are padded, and operands are brought into that order
and back. Where every channel is a group of its own a vector holds as many channels, and
nothing is multiplied by matrices.
"""

from __future__ import annotations

import math

import numpy as np

from perfc.costmodels.protocol import Floats, KernelTable
from perfc.ir import Kernel

FEW = 4
"""Input channels, of images, up to which they are taken as they lie."""

NATIVE_ELEMENTS, NATIVE_TAPS = 20480, 3
"""Largest single image, and window along an axis, of which PyTorch takes its own."""

_CONVOLUTIONS = frozenset({"conv2d", "conv3d"})


def is_grouped(kernel: Kernel) -> bool:
    """Whether it is a convolution of more than one group."""
    return kernel.op in _CONVOLUTIONS and kernel.params.integer("groups", 1) > 1


def conv_amounts(kernels: KernelTable, peak_s: Floats, lanes: int) -> dict[str, Floats]:
    """Return work of groups, padding and reorders of convolutions, 0 of others.

    Seconds at coefficient 1, shape (kernels,) each.

    Args:
        kernels: Of any op.
        peak_s: What each takes at the cores' rate, shape (kernels,).
        lanes: fp32 numbers of a vector.

    """
    found = np.array([_padding(kernel, lanes) for kernel in kernels.kernels])
    grouped, inside, outside, scattered = found.reshape(-1, 4).T
    return {
        "grouped": grouped * peak_s,
        "grouped_rest": grouped * scattered * peak_s,
        "padded_in": inside * peak_s,
        "padded_out": outside * peak_s,
        "reorder_us": scattered * 1e-6,
        "library_us": np.array([_uses_library(k) for k in kernels.kernels]) * 1e-6,
    }


def _uses_library(kernel: Kernel) -> bool:
    """Whether oneDNN computes it, which begins slowly: all but one small image.

    `use_mkldnn` in `aten/src/ATen/native/Convolution.cpp`.
    """
    if kernel.op not in _CONVOLUTIONS:
        return False
    params = kernel.params
    image = params.integer("c_in") * math.prod(_axes(kernel, "size"))
    small = params.integer("n", 1) == 1 and image <= NATIVE_ELEMENTS
    return not small or is_grouped(kernel) or min(_axes(kernel, "kernel")) > NATIVE_TAPS


def _axes(kernel: Kernel, name: str) -> tuple[int, ...]:
    """Return a size of each axis of images, which is one number where all are alike."""
    value = kernel.params.get(name, 1)
    if isinstance(value, tuple):
        return kernel.params.integers(name)
    return (kernel.params.integer(name, 1),) * (3 if kernel.op == "conv3d" else 2)


def _padding(kernel: Kernel, lanes: int) -> tuple[float, float, float, float]:
    """Return groups' work, that of padded channels in and out, whether any are."""
    if kernel.op not in _CONVOLUTIONS:
        return 0.0, 0.0, 0.0, 0.0
    params = kernel.params
    c_in, c_out = params.integer("c_in"), params.integer("c_out")
    if is_grouped(kernel):
        return 1.0, 0.0, 0.0, float(c_out % lanes > 0)
    inside = _padded(c_in, lanes) if c_in >= FEW else 0.0
    outside = _padded(c_out, lanes)
    return 0.0, inside, outside, float(inside + outside > 0)


def _padded(channels: int, lanes: int) -> float:
    return math.ceil(channels / lanes) * lanes / channels - 1
