"""What no convolution over two axes can beat."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perfc.costmodels.kernels import Maths, Number, Signatures, work_bound_s
from perfc.costmodels.machine import Target

WINOGRAD_SAVES: Mapping[str, float] = MappingProxyType(
    {"winograd": 4.0, "fused_winograd": 2.25}
)
"""Multiplications of a 3x3 convolution over those of F(4x4, 3x3) and F(2x2, 3x3)."""


def convolution_bound_s(
    kernels: Signatures[Number], target: Target, maths: Maths[Number]
) -> Number:
    """Return the bound of bytes, and of flops that the algorithm does not save.

    Winograd's trades some for additions of its transforms, which are kernels of their
    own. Where nothing names the algorithm it may be the one with the fewest.
    """
    algorithm = kernels.text("algorithm")
    window = (kernels.param("kernel") == 3) & (kernels.math == "fp32")  # noqa: PLR2004
    window &= kernels.param("stride") * kernels.param("dilation") == 1
    free = (algorithm == "") & window
    saved = maths.where(free, max(WINOGRAD_SAVES.values()), 1.0)
    for name, times in WINOGRAD_SAVES.items():
        saved = maths.where(algorithm == name, times, saved)
    return work_bound_s(kernels, target, maths, flops=kernels.flops / saved)
