"""Convolutions: by algorithm in fp32, else as the GEMM that they compute.

Ungrouped fp32 convolutions with a window are those of `conv_simt`. On tensor cores,
with groups, or without a window, a convolution is priced as the GEMM of its pixels
and filters. Where each group has one channel there is nothing to multiply: kernels of
all types do without tensor cores, and sum up in fp32 (PyTorch, `DepthwiseConv2d.cu`).
These are the same on every GPU that runs CUDA, and issue instructions rather than wait
for memory: they take the clocks that those of an H100 were measured to take. A
gradient is the same over again: of the images one of as many pixels, of the filters one
that sums over the pixels, split over as many blocks as forward has tiles.
"""

from __future__ import annotations

import math

import attrs
import numpy as np

from perfc.costmodels import gemm
from perfc.costmodels.constants import constants
from perfc.costmodels.conv.calls import SIGMA, call_seconds
from perfc.costmodels.conv.lower_bound import convolution_bound_s
from perfc.costmodels.conv.simt import (
    ALGORITHMS,
    DIRECT,
    Convolutions,
    ConvParameters,
    conv_parameters,
)
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    PERFC_ROWS,
    Estimate,
    Flags,
    Floats,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Priced,
    Provenance,
    Signatures,
    one_of,
    trust,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.pricing import at_least_bound_of_one, lower_bound
from perfc.costmodels.sheets import imagined, is_imagined
from perfc.ir import Kernel, Record

_SIZES = ("n", "c_in", "c_out", "kernel")
_WINOGRAD_KERNEL = 3
_CONSTANTS = constants("conv")

_WINOGRAD_CHANNELS = _CONSTANTS.number("winograd_channels")

_FILLED = 32
"""Channels that the tiles of Winograd's algorithm come in."""


@attrs.frozen
class ConvModel:
    """The fastest algorithm; or m = pixels, n = output channels, k = window."""

    name: str = "conv"
    priority: int = 50
    ops: frozenset[str] = frozenset({"conv2d", "conv3d"})
    parameters: ConvParameters | None = None
    """Parameters of `conv_simt`; those of the package if none."""
    direct_overhead: float = _CONSTANTS.number("direct_overhead")
    """Time of an implicit GEMM over that of a plain one of its sizes."""
    gradient_overhead: float = _CONSTANTS.number("gradient_overhead")
    """Time of a gradient without tensor cores over forward's implicit GEMM."""
    deterministic_overhead: float = _CONSTANTS.number("deterministic_overhead")
    """Time of a gradient by an algorithm that sums up in one order, over that of one
    that need not."""
    sigma_deterministic: float = _CONSTANTS.number("sigma_deterministic")
    """Shared, of such gradients."""
    aligned: float = _CONSTANTS.number("aligned")
    """Time of Winograd's algorithm where both numbers of channels fill its tiles, over
    that of the fitted rows, few of which do."""
    sigma_shared: float = _CONSTANTS.number("sigma_shared")
    sigma_independent: float = _CONSTANTS.number("sigma_independent")
    sigma_gemm: float = _CONSTANTS.number("sigma_gemm")
    """Uncertainty of one kernel priced as a GEMM: other windows are in no rows."""
    sigma_backward: float = _CONSTANTS.number("sigma_backward")
    """Shared, of gradients: they are priced as the forward GEMM, not measured."""
    fitted_on: frozenset[str] = frozenset({"6.0", "6.1", "7.0", "7.5"})
    """Compute capabilities of the GPUs of these rows."""

    def claims(self, kernels: KernelTable, target: Target) -> Flags:
        """Claim convolutions with sizes, in a math mode that the target has."""
        return np.asarray(
            gemm.sized(kernels.signatures, target, _SIZES), dtype=np.bool_
        )

    def lower_bound(self, kernels: KernelTable, target: Target) -> Floats:
        """Return a lower bound of each kernel over two axes."""
        return convolution_bound_s(kernels.signatures, target, ARRAYS)

    def lower_bound_of_one(self, one: OneSignature, target: Target) -> float:
        """Return a lower bound of one kernel over two axes."""
        return convolution_bound_s(one, target, FLOATS)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        return imagined(self._known, self._fastest, kernels, target)

    def _known(self, kernels: KernelTable, target: Target) -> Estimate:
        seconds = self._call_seconds(kernels, target, fastest=False)
        simt = np.asarray(_without_tensor_cores(kernels.signatures), dtype=np.bool_)
        tiled = _is_tiled(kernels.signatures, _windows(kernels))
        own = np.where(tiled, self.sigma_independent, self.sigma_gemm)
        whole = simt
        if target.device.compute_capability in PERFC_ROWS:
            seconds = call_seconds(seconds, kernels.signatures, simt, target, ARRAYS)
            whole, own = np.ones_like(simt), np.full(len(kernels), SIGMA)
        elif target.device.runs_cuda:
            own_calls = np.asarray(_is_depthwise(kernels.signatures), dtype=np.bool_)
            if own_calls.any():
                calls_s = call_seconds(
                    seconds, kernels.signatures, simt, target, ARRAYS
                )
                seconds = np.where(own_calls, calls_s, seconds)
        # Of kernels on tensor cores other rows are plain GEMMs, without layouts.
        left_s = np.where(whole, gemm.without_beside(seconds, kernels, target), seconds)
        provenance, sigma_shared = trust(self.sigma_shared, self.fitted_on, target)
        backward = kernels.text("phase") != "forward"
        shared = np.where(
            kernels.given("deterministic"),
            self.sigma_deterministic,
            self.sigma_backward,
        )
        return Estimate(
            left_s,
            np.where(backward, np.maximum(sigma_shared, shared), sigma_shared),
            np.where(backward, self.sigma_gemm, own),
            [self.name] * len(kernels),
            [Provenance.ANALYTIC if b else provenance for b in backward.tolist()],
        )

    def _fastest(self, kernels: KernelTable, target: Target) -> Floats:
        return self._call_seconds(kernels, target, fastest=True)

    def _call_seconds(
        self, kernels: KernelTable, target: Target, *, fastest: bool
    ) -> Floats:
        """Return the seconds of each call, the kernels beside it among them."""
        windows = _windows(kernels)
        simt = np.asarray(_without_tensor_cores(kernels.signatures), dtype=np.bool_)
        tiled = np.asarray(_is_tiled(kernels.signatures, windows), dtype=np.bool_)
        seconds = np.empty(len(kernels))
        if len(rows := np.flatnonzero(tiled)):
            part, sides = kernels.take(rows), windows[rows]
            seconds[rows] = self._tiled_seconds(part.signatures, sides, target, ARRAYS)
        if len(rows := np.flatnonzero(~tiled)):
            part, sides = kernels.take(rows), windows[rows]
            *sizes, moved, peak = _as_gemm(part.signatures, sides, target, ARRAYS)
            nowhere = np.zeros(len(part), dtype=np.bool_)
            gemms = gemm.Gemms(
                np.stack(sizes),
                moved,
                peak,
                transposed=nowhere,
                across=nowhere,
                biased=nowhere,
                own=nowhere.astype(np.intp),
                grouped=True,
            )
            plain_s = gemm.math_seconds(gemms, simt[rows], target, fastest=fastest)
            seconds[rows] = self._as_convolution(
                plain_s, part.signatures, target, ARRAYS
            )
        return np.maximum(seconds, lower_bound(kernels, target))

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Whether it claims one kernel."""
        return bool(gemm.sized(one, target, _SIZES))

    def estimate_one(self, one: OneSignature, target: Target) -> Priced | None:
        """Price one kernel, on a known GPU."""
        if is_imagined(target):
            return None
        window = _window(one.kernel)
        tiled = _is_tiled(one, window)
        simt = bool(_without_tensor_cores(one))
        if tiled:
            seconds = self._tiled_seconds(one, window, target, FLOATS)
        else:
            size = _as_gemm(one, window, target, FLOATS)
            if simt:
                plain_s = gemm.simt_second(size, target, grouped=True)
            else:
                plain_s = gemm.math_second(size, one.math, target)
            seconds = self._as_convolution(plain_s, one, target, FLOATS)
        seconds = at_least_bound_of_one(seconds, one, target)
        whole = target.device.compute_capability in PERFC_ROWS
        pytorchs = target.device.runs_cuda and bool(_is_depthwise(one))
        if whole or pytorchs:
            seconds = call_seconds(seconds, one, simt, target, FLOATS)
        if simt or whole:
            seconds = gemm.without_beside_one(seconds, one, target)
        provenance, shared = trust(self.sigma_shared, self.fitted_on, target)
        if one.text("phase") != "forward":
            in_order = one.given("deterministic")
            least = self.sigma_deterministic if in_order else self.sigma_backward
            shared = max(shared, least)
            return Priced(seconds, shared, self.sigma_gemm, Provenance.ANALYTIC)
        own = self.sigma_independent if tiled else self.sigma_gemm
        own = SIGMA if whole else own
        return Priced(seconds, shared, own, provenance)

    def _as_convolution(
        self,
        seconds: Number,
        kernels: Signatures[Number],
        target: Target,
        maths: Maths[Number],
    ) -> Number:
        """Return the seconds of a convolution whose plain GEMM takes *seconds*."""
        start_s = target.device.kernel_floor_s
        simt = _without_tensor_cores(kernels)
        slower = maths.where(simt, self._gradient_factors(kernels, maths), 1.0)
        return start_s + (seconds - start_s) * (slower * self.direct_overhead)

    def _gradient_factors(
        self, kernels: Signatures[Number], maths: Maths[Number]
    ) -> Number:
        forward = kernels.text("phase") == "forward"
        in_order = maths.flag(kernels.given("deterministic"))
        slower = 1.0 + in_order * (self.deterministic_overhead - 1.0)
        return maths.where(forward, 1.0, slower * self.gradient_overhead)

    def _tiled_seconds(
        self,
        kernels: Signatures[Number],
        window: Number,
        target: Target,
        maths: Maths[Number],
    ) -> Number:
        """Return the seconds of the algorithm that the launch names, or the fastest."""
        p = self.parameters or conv_parameters()
        images = maths.most(kernels.param("n"), 1.0)
        c_in, c_out = kernels.param("c_in"), kernels.param("c_out")
        # The pixels follow from the flops, whatever the padding and the stride.
        pixels = maths.most(kernels.flops / (2 * c_in * c_out * window), 1.0)
        sizes = Convolutions(images, c_in, c_out, maths.sqrt(pixels / images), window)
        # A launch that names its algorithm is believed: that was chosen by the
        # lowering, or it was measured. Otherwise the fastest one that the sizes allow
        # is taken.
        named = kernels.text("algorithm")
        known = one_of(named, ALGORITHMS)
        winograd = fits_winograd(kernels) & (named == "")
        # Few of the fitted rows have channels that fill Winograd's tiles; the others
        # compute padding, which the fit has taken for work.
        filled = (sizes.c_in % _FILLED == 0) & (sizes.c_out % _FILLED == 0)
        aligned = maths.where(filled, self.aligned, 1.0)
        fastest = window * math.inf
        for name, seconds_of in ALGORITHMS.items():
            asked = named == name
            if name == DIRECT:
                factor = self._gradient_factors(kernels, maths)
                taken = known == asked  # by name, or where nothing known is named
            else:
                factor, taken = aligned, winograd | asked
            # For a single kernel this skips the algorithms that it cannot take.
            if maths.any(taken):
                found = seconds_of(sizes, target, p, maths) * factor
                fastest = maths.where(taken, maths.least(fastest, found), fastest)
        return target.device.kernel_floor_s + p.start_s + fastest


def _is_tiled(kernels: Signatures[Number], window: Number) -> Flags | bool:
    """Whether each kernel is an ungrouped fp32 convolution with a window."""
    plain = (window > 1) & (kernels.param("groups") <= 1)
    tiled: Flags | bool = plain & (kernels.math == "fp32") & (kernels.op == "conv2d")
    return tiled


def _without_tensor_cores(kernels: Signatures[Number]) -> Flags | bool:
    """Whether their cores multiply nothing: by type, or as there is nothing to."""
    simt: Flags | bool = one_of(kernels.math, gemm.SIMT_MODES) | _is_depthwise(kernels)
    return simt


def _is_depthwise(kernels: Signatures[Number]) -> Flags | bool:
    groups = kernels.param("groups")
    found: Flags | bool = (groups > 1) & (kernels.param("c_in") == groups)
    return found


def _as_gemm(
    kernels: Signatures[Number], window: Number, target: Target, maths: Maths[Number]
) -> gemm.Size[Number]:
    groups = maths.most(kernels.param("groups"), 1.0)
    columns = kernels.param("c_out") / groups
    depth = kernels.param("c_in") / groups * window
    # The pixels follow from the flops, whatever the padding and the stride.
    pixels = maths.most(kernels.flops / (2 * groups * columns * depth), 1.0)
    vector = target.peak("fp32")
    peak = kernels.peak_flops_per_s(target)
    peak = maths.where(_is_depthwise(kernels) & (kernels.math != "fp64"), vector, peak)
    return gemm.Size(groups, pixels, columns, depth, kernels.bytes, peak)


def _windows(kernels: KernelTable) -> Floats:
    """Return how many points each window has; one number is the size of each axis."""
    side = kernels.param("kernel")
    points = np.where(kernels.op == "conv3d", side**3, side**2)
    # A record of columns has one number; only kernels made by hand have more.
    for row in np.flatnonzero(side == 0).tolist():
        points[row] = _window(kernels.kernels[row])
    return points


def _window(kernel: Kernel) -> float:
    """Return the points of one kernel's window."""
    sizes = kernel.params.get("kernel")
    if isinstance(sizes, int | float):
        return float(sizes) ** (3 if kernel.op == "conv3d" else 2)
    if isinstance(sizes, tuple):
        return float(math.prod(size for size in sizes if isinstance(size, int)))
    return 1.0


def fits_winograd(kernels: Signatures[Number]) -> Flags | bool:
    """Whether Winograd's algorithm computes these in fp32: 3x3 windows, one by one."""
    found: Flags | bool = kernels.param("kernel") == _WINOGRAD_KERNEL
    for name in ("stride", "dilation", "groups"):
        found = found & (kernels.param(name, 1.0) == 1)
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
