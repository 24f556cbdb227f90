"""Convolutions as the matrix product that an implicit-GEMM kernel computes."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.extrapolation import trust
from perfc.costmodels.gemm import math_seconds, sized, uses_simt
from perfc.costmodels.products import Products
from perfc.costmodels.protocol import (
    Estimate,
    Floats,
    KernelTable,
    uniform_estimate,
)
from perfc.costmodels.target import Target
from perfc.ir import Kernel

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
        gain = np.where(simt & _fits_winograd(kernels), self.winograd_gain, 1.0)
        provenance, sigma_shared = trust(self.sigma_shared, self.fitted_on, target)
        return uniform_estimate(
            start_s + (seconds - start_s) * self.direct_overhead / gain,
            model=self.name,
            provenance=provenance,
            sigma_shared=sigma_shared,
            sigma_independent=self.sigma_independent,
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


def _fits_winograd(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether cuDNN takes Winograd's algorithm for these sizes in fp32."""
    fits: NDArray[np.bool_] = (
        (kernels.param("kernel") == _WINOGRAD_KERNEL)
        & (kernels.param("stride", 1.0) == 1)
        & (kernels.param("groups", 1.0) <= 1)
        & (kernels.param("c_in") >= _WINOGRAD_CHANNELS)
    )
    return fits


CONV = ConvModel()
"""The built-in instance."""
