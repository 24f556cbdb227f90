"""Convolutions: by algorithm in fp32, else as the matrix product that they compute.

Ungrouped fp32 convolutions with a window are those of `conv_simt`. On tensor cores,
with groups, or without a window, a convolution is priced as the product of its pixels
and filters. A gradient is the same over again: of the images one of as many pixels, of
the filters one that sums over the pixels, split over as many blocks as forward has
tiles.
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.beside import without_beside
from perfc.costmodels.bound import lower_bound
from perfc.costmodels.conv_simt import (
    ALGORITHMS,
    DIRECT,
    Convolutions,
    ConvParameters,
    conv_parameters,
)
from perfc.costmodels.extrapolation import trust
from perfc.costmodels.gemm import math_seconds, sized, uses_simt
from perfc.costmodels.products import Products
from perfc.costmodels.protocol import (
    Estimate,
    Flags,
    Floats,
    KernelTable,
    Provenance,
)
from perfc.costmodels.target import Target
from perfc.ir import Kernel, Record

_WINOGRAD_KERNEL = 3
_WINOGRAD_CHANNELS = 32.0

_FILLED = 32
"""Channels that the tiles of Winograd's algorithm come in."""


@attrs.frozen
class ConvModel:
    """The fastest algorithm; or m = pixels, n = output channels, k = window."""

    name: str = "conv"
    priority: int = 50
    ops: frozenset[str] = frozenset({"conv2d", "conv3d"})
    parameters: ConvParameters | None = None
    """Of `conv_simt`; those of the package if none."""
    direct_overhead: float = 1.05
    """Time of an implicit product over that of a plain one of its sizes."""
    gradient_overhead: float = 1.18
    """Time of a gradient without tensor cores over that of forward's implicit product:
    all of ResNet-50 in fp32 on V100 (a Kineto trace of HolisticTraceAnalysis, PyTorch
    2.3); PyTorch 1.9's cuDNN took 1.3."""
    aligned: float = 0.8
    """Time of Winograd's algorithm where both numbers of channels fill its tiles, over
    that of the fitted rows, few of which do: the same trace, forward and backward."""
    sigma_shared: float = 0.1
    sigma_independent: float = 0.16
    """From held-out 3x3 rows, and GPUs left out of the fit (docs/accuracy.md)."""
    sigma_product: float = 0.6
    """Of one kernel that is priced as a product: other windows are in no rows."""
    sigma_backward: float = 0.3
    """Shared, of gradients: they are priced as the forward product, not measured."""
    fitted_on: frozenset[str] = frozenset({"6.0", "6.1", "7.0", "7.5"})
    """Compute capabilities of the GPUs of these rows."""

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim convolutions with sizes, in a math mode that the target has."""
        return sized(kernels, target, ("n", "c_in", "c_out", "kernel"))

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        simt = uses_simt(kernels)
        tiled = _is_tiled(kernels)
        seconds = np.empty(len(kernels))
        for chosen, price in (
            (tiled, self._tiled_seconds),
            (~tiled, self._product_seconds),
        ):
            if chosen.any():
                rows = np.flatnonzero(chosen)
                seconds[rows] = price(kernels.take(rows), target)
        seconds = np.maximum(seconds, lower_bound(kernels, target))
        # Of kernels on tensor cores the rows are plain products, without layouts.
        left_s = np.where(simt, without_beside(seconds, kernels, target), seconds)
        provenance, sigma_shared = trust(self.sigma_shared, self.fitted_on, target)
        backward = kernels.text("phase", "forward") != "forward"
        own = np.where(tiled, self.sigma_independent, self.sigma_product)
        return Estimate(
            left_s,
            np.where(backward, max(sigma_shared, self.sigma_backward), sigma_shared),
            np.where(backward, self.sigma_product, own),
            [self.name] * len(kernels),
            [Provenance.ANALYTIC if b else provenance for b in backward.tolist()],
        )

    def _product_seconds(self, kernels: KernelTable, target: Target) -> Floats:
        start_s = target.device.kernel_floor_s
        products = _as_products(kernels, target)
        simt = uses_simt(kernels)
        seconds = math_seconds(products, simt, target)
        slower = np.where(simt, self._gradient_factors(kernels), 1.0)
        slower *= self.direct_overhead
        found: Floats = start_s + (seconds - start_s) * slower
        return found

    def _gradient_factors(self, kernels: KernelTable) -> Floats:
        forward = kernels.text("phase", "forward") == "forward"
        return np.where(forward, 1.0, self.gradient_overhead)

    def _tiled_seconds(self, kernels: KernelTable, target: Target) -> Floats:
        """Return what the algorithm takes that the launch names, or the fastest."""
        p = self.parameters or conv_parameters()
        sizes = _sizes_of(kernels)
        named = kernels.text("algorithm")
        unnamed = ~np.isin(named, list(ALGORITHMS))
        winograd = fits_winograd(kernels)
        filled = (sizes.c_in % _FILLED == 0) & (sizes.c_out % _FILLED == 0)
        aligned = np.where(filled, self.aligned, 1.0)
        gradient = self._gradient_factors(kernels)
        fastest = np.full(len(kernels), np.inf)
        for name, seconds_of in ALGORITHMS.items():
            free = unnamed if name == DIRECT else winograd & (named == "")
            found = seconds_of(sizes, target, p)
            found = found * (gradient if name == DIRECT else aligned)
            fastest = np.where(
                free | (named == name), np.minimum(fastest, found), fastest
            )
        seconds: Floats = target.device.kernel_floor_s + p.start_s + fastest
        return seconds


def _is_tiled(kernels: KernelTable) -> Flags:
    """Whether each kernel is an ungrouped fp32 convolution with a window."""
    windows = _window_points(kernels) > 1
    plain = windows & (kernels.param("groups", 1.0) <= 1)
    tiled: Flags = plain & (kernels.math == "fp32") & (kernels.op == "conv2d")
    return tiled


def _sizes_of(kernels: KernelTable) -> Convolutions:
    images = np.maximum(kernels.param("n", 1.0), 1.0)
    c_in, c_out = kernels.param("c_in", 1.0), kernels.param("c_out", 1.0)
    window = _window_points(kernels)
    # The pixels follow from the flops, whatever the padding and the stride.
    pixels = np.maximum(1.0, kernels.flops / (2 * c_in * c_out * window))
    return Convolutions(images, c_in, c_out, np.sqrt(pixels / images), window)


def _as_products(kernels: KernelTable, target: Target) -> Products:
    groups = np.maximum(kernels.param("groups", 1.0), 1.0)
    columns = kernels.param("c_out") / groups
    depth = kernels.param("c_in") / groups * _window_points(kernels)
    # The pixels follow from the flops, whatever the padding and the stride.
    pixels = np.maximum(1.0, kernels.flops / (2 * groups * columns * depth))
    return Products(
        np.stack([groups, pixels, columns, depth]),
        kernels.bytes,
        kernels.peak_flops_per_s(target),
        np.zeros(len(kernels), dtype=np.bool_),
        np.zeros(len(kernels), dtype=np.bool_),
    )


def _window_points(kernels: KernelTable) -> Floats:
    """Return how many points a window has; one number is the size of each axis."""
    side = kernels.param("kernel", 0.0)
    points = np.where(kernels.op == "conv3d", side**3, side**2)
    # A record of columns has one number; only kernels made by hand have more.
    for row in np.flatnonzero(side == 0).tolist():
        points[row] = _points(kernels.kernels[row])
    return points


def _points(kernel: Kernel) -> float:
    sizes = kernel.params.get("kernel")
    if isinstance(sizes, tuple):
        return math.prod(size for size in sizes if isinstance(size, int))
    return 1.0


def fits_winograd(kernels: KernelTable) -> Flags:
    """Whether Winograd's algorithm computes these in fp32: 3x3 windows, one by one."""
    found: Flags = kernels.param("kernel") == _WINOGRAD_KERNEL
    for name in ("stride", "dilation", "groups"):
        found &= kernels.param(name, 1.0) == 1
    return found


def launches_winograd(params: Record) -> bool:
    """Whether cuDNN launches Winograd's kernels for these sizes in fp32."""
    moved = (params.get("stride", 1), params.get("dilation", 1))
    if params.get("kernel") != _WINOGRAD_KERNEL or moved != (1, 1):
        return False
    channels = params.get("c_in", 0)
    wide = isinstance(channels, int | float) and channels >= _WINOGRAD_CHANNELS
    return wide and params.get("groups", 1) == 1


CONV = ConvModel()
"""The built-in instance."""
