"""Convolutions as the matrix product that an implicit-GEMM kernel computes.

A gradient is the same product over again: of the images one of as many pixels, of the
filters one that sums over the pixels, split over as many blocks as forward has tiles.
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.beside import without_beside
from perfc.costmodels.extrapolation import trust
from perfc.costmodels.gemm import math_seconds, sized, uses_simt
from perfc.costmodels.products import Products
from perfc.costmodels.protocol import (
    Estimate,
    Floats,
    KernelTable,
    Provenance,
)
from perfc.costmodels.target import Target
from perfc.ir import Kernel, Record

_WINOGRAD_KERNEL = 3
_WINOGRAD_CHANNELS = 32.0


@attrs.frozen
class ConvModel:
    """Implicit GEMM: m = pixels, n = output channels, k = window; per group."""

    name: str = "conv"
    priority: int = 50
    ops: frozenset[str] = frozenset({"conv2d", "conv3d"})
    direct_overhead: float = 1.05
    """Time of an implicit product over that of a plain one of its sizes."""
    winograd_gain: float = 1.5
    """By how much Winograd's algorithm beats the implicit product, where used."""
    sigma_shared: float = 0.24
    sigma_independent: float = 0.6
    """From held-out 3x3 rows; other windows have not been compared."""
    sigma_backward: float = 0.3
    """Shared, of gradients: they are priced as the forward product, not measured."""
    fitted_on: frozenset[str] = frozenset({"6.0", "7.0", "7.5"})
    """Compute capabilities of the GPUs of these rows."""

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim convolutions with sizes, in a math mode that the target has."""
        return sized(kernels, target, ("n", "c_in", "c_out", "kernel"))

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        simt = uses_simt(kernels)
        seconds = math_seconds(_as_products(kernels, target), simt, target)
        start_s = target.device.kernel_floor_s
        winograd = np.array([fits_winograd(k.params) for k in kernels.kernels])
        gain = np.where(simt & winograd, self.winograd_gain, 1.0)
        whole_s = start_s + (seconds - start_s) * self.direct_overhead / gain
        whole_s = np.maximum(whole_s, kernels.flops / kernels.peak_flops_per_s(target))
        # Of kernels on tensor cores the rows are plain products, without layouts.
        left_s = np.where(simt, without_beside(whole_s, kernels, target), whole_s)
        provenance, sigma_shared = trust(self.sigma_shared, self.fitted_on, target)
        backward = np.array(["phase" in k.params for k in kernels.kernels])
        return Estimate(
            left_s,
            np.where(backward, max(sigma_shared, self.sigma_backward), sigma_shared),
            np.full(len(kernels), self.sigma_independent),
            [self.name] * len(kernels),
            [Provenance.ANALYTIC if b else provenance for b in backward.tolist()],
        )


def _as_products(kernels: KernelTable, target: Target) -> Products:
    groups = np.maximum(kernels.param("groups", 1.0), 1.0)
    columns = kernels.param("c_out") / groups
    depth = kernels.param("c_in") / groups * _window_points(kernels)
    # The pixels follow from the flops, whatever the padding and the stride.
    pixels = np.maximum(1.0, kernels.flops / (2 * groups * columns * depth))
    return Products(
        np.stack([groups, pixels, columns, depth], axis=1),
        kernels.bytes,
        kernels.peak_flops_per_s(target),
        np.zeros(len(kernels), dtype=np.bool_),
    )


def _window_points(kernels: KernelTable) -> Floats:
    """Return how many points a window has; one number is the size of each axis."""
    return np.array([_points(k) for k in kernels.kernels], dtype=np.float64)


def _points(kernel: Kernel) -> float:
    sizes = kernel.params.get("kernel")
    if isinstance(sizes, tuple):
        return math.prod(size for size in sizes if isinstance(size, int))
    axes = 3 if kernel.op == "conv3d" else 2
    return float(sizes) ** axes if isinstance(sizes, int | float) else 1.0


def fits_winograd(params: Record) -> bool:
    """Whether cuDNN takes Winograd's algorithm for these sizes in fp32."""
    moved = (params.get("stride", 1), params.get("dilation", 1))
    if params.get("kernel") != _WINOGRAD_KERNEL or moved != (1, 1):
        return False
    channels = params.get("c_in", 0)
    wide = isinstance(channels, int | float) and channels >= _WINOGRAD_CHANNELS
    return wide and params.get("groups", 1) == 1


CONV = ConvModel()
"""The built-in instance."""
