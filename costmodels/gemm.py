"""Matrix products: the model of `products`, for SIMT and tensor cores.

Where products of a GPU were measured in thousands, `gemm_residual` corrects the model.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.beside import without_beside, without_beside_one
from perfc.costmodels.extrapolation import trust
from perfc.costmodels.gemm_residual import (
    SIGMA_INDEPENDENT,
    SIGMA_SHARED,
    correct,
    correct_one,
)
from perfc.costmodels.product_layouts import across, is_across
from perfc.costmodels.product_machine import Size
from perfc.costmodels.product_parameters import (
    SIMT_FITTED_ON,
    SIMT_MODES,
    TENSOR_FITTED_ON,
    calibrated,
    simt_parameters,
    tensor_parameters,
)
from perfc.costmodels.products import (
    Products,
    simt_second,
    simt_seconds,
    tensor_second,
    tensor_seconds,
)
from perfc.costmodels.protocol import (
    Estimate,
    Flags,
    Floats,
    KernelTable,
    Priced,
    Provenance,
    Texts,
)
from perfc.costmodels.target import Target
from perfc.ir import Kernel

_TRANSPOSED = ("nt", "tn")
"""Layouts of a linear layer: `nt` as C = A B in rows, and `tn` in cuBLAS's columns."""


@attrs.frozen
class GemmModel:
    """Best tile and split of a small menu, in waves over the SMs."""

    name: str = "gemm"
    priority: int = 50
    ops: frozenset[str] = frozenset({"gemm"})

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim products with sizes, in any math mode that the target has."""
        return sized(kernels, target, ("m", "n", "k"))

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows."""
        simt = uses_simt(kernels)
        products = products_of(kernels, target)
        on_simt, sigma_simt, own_simt = _simt_trust(target)
        on_tensor, sigma_tensor, own_tensor = _tensor_trust(target)
        seconds = math_seconds(products, simt, target)
        if target.fits:
            _put_calibrated(seconds, products, kernels, target)
        shared = np.where(simt, sigma_simt, sigma_tensor)
        own = np.where(simt, own_simt, own_tensor)
        known = correct(seconds, products, kernels, target)
        shared[known], own[known] = SIGMA_SHARED, SIGMA_INDEPENDENT
        return Estimate(
            without_beside(seconds, kernels, target),
            shared,
            own,
            [self.name] * len(kernels),
            _either(simt, on_simt, on_tensor),
        )

    def claims_one(self, kernel: Kernel, target: Target) -> bool:
        """Claim it, or leave it to a table to say."""
        return True

    def estimate_one(self, kernel: Kernel, target: Target) -> Priced | None:
        """Price a kernel whose sizes are plain numbers."""
        size = _size_of(kernel, target)
        if size is None:
            return None
        transposed = kernel.params.get("layout") in _TRANSPOSED
        if kernel.math in SIMT_MODES:
            seconds = simt_second(
                size, target, transposed=transposed, across=is_across(kernel)
            )
            provenance, shared, own = target.once(_simt_trust)
        else:
            seconds = tensor_second(size, target)
            provenance, shared, own = target.once(_tensor_trust)
        dtype = kernel.math if kernel.math == "tf32" else kernel.dtype
        known = correct_one(seconds, size, dtype, target, transposed=transposed)
        if known is not None:
            seconds, shared, own = known, SIGMA_SHARED, SIGMA_INDEPENDENT
        seconds = without_beside_one(seconds, kernel, target)
        return Priced(seconds, shared, own, provenance)


def _size_of(kernel: Kernel, target: Target) -> Size[float] | None:
    """Return the product that a kernel computes; None: not claimed, or no numbers."""
    peak = target.device.flops_per_s.get(kernel.math, 0.0)
    params = kernel.params
    given = (params.get("b", 1), params.get("m"), params.get("n"), params.get("k"))
    sizes = [float(size) for size in given if isinstance(size, int)]
    moved = float(kernel.work.bytes_read + kernel.work.bytes_written)
    if len(sizes) < len(given) or not (all(sizes) and peak and moved):
        return None
    b, m, n, k = sizes
    return Size(b, m, n, k, moved, peak)


def _either(rows: Flags, one: Provenance, other: Provenance) -> list[Provenance]:
    if one is other:
        return [one] * len(rows)
    return [one if row else other for row in rows.tolist()]


def _simt_trust(target: Target) -> tuple[Provenance, float, float]:
    p = simt_parameters()
    return *trust(p.sigma_shared, SIMT_FITTED_ON, target), p.sigma_independent


def _tensor_trust(target: Target) -> tuple[Provenance, float, float]:
    p = tensor_parameters(target.device.architecture)
    return *trust(p.sigma_shared, TENSOR_FITTED_ON, target), p.sigma_independent


def _put_calibrated(
    seconds: Floats, products: Products, kernels: KernelTable, target: Target
) -> None:
    """Price anew, in place, products of the types that the target's profile knows."""
    simt = uses_simt(kernels)
    names = np.where(kernels.math == "tf32", "tf32", kernels.dtype)
    for name in np.unique(names).tolist():
        for vector, shipped, price in (
            (True, simt_parameters(), simt_seconds),
            (False, tensor_parameters(target.device.architecture), tensor_seconds),
        ):
            rows = (names == name) & (simt == vector)
            parameters = calibrated(shipped, target, name)
            if parameters is not None and rows.any():
                seconds[rows] = price(products.part(rows), target, parameters)


def sized(
    kernels: KernelTable, target: Target, names: tuple[str, ...]
) -> NDArray[np.bool_]:
    """Whether each kernel gives its sizes, in a math mode that the target has."""
    found = one_of(kernels.math, target.device.flops_per_s)
    for name in names:
        found &= kernels.given(name)
    return found


def products_of(kernels: KernelTable, target: Target) -> Products:
    """Return the sizes of the products that the kernels compute."""
    sizes = [kernels.param(name, 1.0) for name in ("b", "m", "n", "k")]
    return Products(
        np.stack(sizes),
        kernels.bytes,
        kernels.peak_flops_per_s(target),
        one_of(kernels.text("layout"), _TRANSPOSED),
        across(kernels),
    )


def uses_simt(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether each kernel computes without tensor cores."""
    kinds, at = kernels.kinds
    return np.array([math in SIMT_MODES for _, _, math in kinds], dtype=np.bool_)[at]


def one_of(words: Texts, chosen: Iterable[str]) -> Flags:
    """Whether each word is one of those chosen: few, so that comparing is quick."""
    found = np.zeros(len(words), dtype=np.bool_)
    for word in chosen:
        found |= words == word
    return found


def math_seconds(products: Products, simt: NDArray[np.bool_], target: Target) -> Floats:
    """Return the duration of each product, with the parameters of its math mode."""
    vector, tensor = simt_parameters(), tensor_parameters(target.device.architecture)
    if simt.all():
        return simt_seconds(products, target, vector)
    seconds = tensor_seconds(products, target, tensor)
    if simt.any():
        seconds[simt] = simt_seconds(products.part(simt), target, vector)
    return seconds


GEMM = GemmModel()
"""The built-in instance."""
