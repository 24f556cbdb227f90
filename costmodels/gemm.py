"""Matrix products: the model of `products`, for SIMT and tensor cores."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.beside import without_beside
from perfc.costmodels.extrapolation import trust
from perfc.costmodels.products import (
    SIMT,
    SIMT_MODES,
    TENSOR,
    Products,
    product_seconds,
)
from perfc.costmodels.protocol import Estimate, Floats, KernelTable
from perfc.costmodels.target import Target


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
        on_simt, sigma_simt = trust(SIMT.sigma_shared, SIMT.fitted_on, target)
        on_tensor, sigma_tensor = trust(TENSOR.sigma_shared, TENSOR.fitted_on, target)
        whole_s = math_seconds(products_of(kernels, target), simt, target)
        return Estimate(
            without_beside(whole_s, kernels, target),
            np.where(simt, sigma_simt, sigma_tensor),
            np.where(simt, SIMT.sigma_independent, TENSOR.sigma_independent),
            [self.name] * len(kernels),
            [on_simt if row else on_tensor for row in simt.tolist()],
        )


def sized(
    kernels: KernelTable, target: Target, names: tuple[str, ...]
) -> NDArray[np.bool_]:
    """Whether each kernel gives its sizes, in a math mode that the target has."""
    modes = target.device.flops_per_s
    return np.array(
        [
            k.math in modes and all(k.params.get(name) for name in names)
            for k in kernels.kernels
        ],
        dtype=np.bool_,
    )


def products_of(kernels: KernelTable, target: Target) -> Products:
    """Return the sizes of the products that the kernels compute."""
    sizes = [kernels.param(name, 1.0) for name in ("b", "m", "n", "k")]
    # A linear layer is `nt` as C = A B in rows, and `tn` in cuBLAS's columns.
    transposed = [k.params.get("layout") in {"nt", "tn"} for k in kernels.kernels]
    return Products(
        np.stack(sizes, axis=1),
        kernels.bytes,
        kernels.peak_flops_per_s(target),
        np.array(transposed, dtype=np.bool_),
    )


def uses_simt(kernels: KernelTable) -> NDArray[np.bool_]:
    """Whether each kernel computes without tensor cores."""
    return np.array(
        [kernel.math in SIMT_MODES for kernel in kernels.kernels], dtype=np.bool_
    )


def math_seconds(products: Products, simt: NDArray[np.bool_], target: Target) -> Floats:
    """Return the duration of each product, with the parameters of its math mode."""
    if simt.all():
        return product_seconds(products, target, SIMT)
    seconds = np.empty(len(products))
    for rows, parameters in ((simt, SIMT), (~simt, TENSOR)):
        if rows.any():
            seconds[rows] = product_seconds(products.part(rows), target, parameters)
    return seconds


GEMM = GemmModel()
"""The built-in instance."""
