"""What measured products of one GPU say beyond the model of `products`.

A library's choice of kernel for each size is no formula. Where thousands of products of
a GPU were measured, a small network says by which factor they differ from the model:
two layers of tanh over the sizes, what the model says of them, and how well they fill
tiles and waves. It is used for that GPU, type and range of sizes alone: on other GPUs
such corrections made things worse.

Weights are in `fitted/gemm_residual.npz`, written by `benchmarks/fit.py --what
products` from three quarters of the (n, k) of aiconfigurator's rows (Apache-2.0; CUDA
graphs; bf16: sglang 0.5.10, others: the libraries that its tables name), and from half
of NeuSight's (MIT; fp32; event pairs whose kernel the host's call does not hide; torch
2.1), 2026-11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfc.costmodels.fitted_file import FOLDER
from perfc.costmodels.maths import ARRAYS, FLOATS, Maths, Number
from perfc.costmodels.network import Network, Weights, networks
from perfc.costmodels.product_machine import Size, mean_width
from perfc.costmodels.products import Products
from perfc.costmodels.protocol import Flags, Floats, KernelTable
from perfc.costmodels.target import Target

RESIDUAL_FILE = FOLDER / "gemm_residual.npz"
"""Weights by target, type of the rows and layer."""

_LOG2_6, _WARM = math.log2(6), 1.5 * math.log(2)
"""From what of L2 on operands are warm, and how sharply they cool."""

SIGMA_SHARED, SIGMA_INDEPENDENT = 0.03, 0.1
"""Of products that are corrected: on held-out (n, k) of A100, H100 and L40S."""

SAME_KERNELS: Mapping[str, str] = {"fp16": "bf16"}
"""Types that were not measured, and the type that takes the same kernels."""

_AT_ONCE = 1024
"""Rows corrected at a time: their features then stay in a CPU's cache."""


def has_network(target: Target, dtype: str) -> bool:
    """Whether products of a type were measured on a GPU in thousands."""
    return (target.device.name, SAME_KERNELS.get(dtype, dtype)) in networks(
        RESIDUAL_FILE
    )


def has_networks(target: Target) -> bool:
    """Whether products of any type were."""
    return bool(target.once(_own_networks))


def correct(
    seconds: Floats, products: Products, kernels: KernelTable, target: Target
) -> Flags:
    """Correct the model's *seconds* in place; return which rows were measured alike.

    Args:
        seconds: What the model says, shape (rows,).
        products: Of what.
        kernels: The kernels that compute them.
        target: On which GPU.

    """
    known = np.zeros(len(seconds), dtype=np.bool_)
    own, (kinds, at) = target.once(_own_networks), kernels.kinds
    for number, (_, dtype, math_mode) in enumerate(kinds):
        network = own.get("tf32" if math_mode == "tf32" else dtype)
        if network is None:
            continue
        alike = measured(seconds, products, network) & (at == number)
        if alike.any():
            part = products if alike.all() else products.part(alike)
            seconds[alike] *= factors(network, seconds[alike], part, target)
            known |= alike
    return known


def measured(seconds: Floats, products: Products, network: Network) -> Flags:
    """Return which products are of sizes that were measured."""
    sizes = ranged(seconds, products)
    inside = (sizes >= network.least) & (sizes <= network.most)
    found: Flags = np.logical_and.reduce(inside)
    return found


def ranged(seconds: Floats, products: Products) -> Floats:
    """Return what the range that was measured is told by, shape (7, rows).

    Sizes, the longest side of what is batched, the model's *seconds*, and the batch
    where an operand is transposed.
    """
    turned = products.transposed.astype(np.float64)
    return np.array(_ranged(seconds, products.size, turned, ARRAYS))


def _ranged(
    seconds: Number, size: Size[Number], transposed: Number, maths: Maths[Number]
) -> tuple[Number, ...]:
    batch, m, n, k, _, _ = size
    side = maths.most(maths.most(m, n), k) * maths.flag(batch > 1)
    return batch, m, n, k, side, seconds, batch * transposed


def factors(
    network: Network, seconds: Floats, products: Products, target: Target
) -> Floats:
    """Return by what to multiply the model's *seconds* of measured sizes."""
    parts = [
        network(features_of(seconds[part], products.part(part), target))
        for at in range(0, len(seconds), _AT_ONCE)
        for part in (slice(at, at + _AT_ONCE),)
    ]
    return np.exp(np.concatenate(parts))


def correct_one(
    seconds: float, size: Size[float], dtype: str, target: Target, *, transposed: bool
) -> float | None:
    """Return the model's *seconds* of one product corrected; None: not measured."""
    network = target.once(_own_networks).get(dtype)
    turned = float(transposed)
    if network is None or not network.covers(_ranged(seconds, size, turned, FLOATS)):
        return None
    features = _features(seconds, size, turned, target, FLOATS)
    return seconds * math.exp(network.of_one(features))


def _own_networks(target: Target) -> Mapping[str, Network]:
    """Return the networks of a GPU by type."""
    found = {
        dtype: network
        for (name, dtype), network in networks(RESIDUAL_FILE).items()
        if name == target.device.name
    }
    alike = {new: found[old] for new, old in SAME_KERNELS.items() if old in found}
    return found | alike


def features_of(seconds: Floats, products: Products, target: Target) -> Weights:
    """Return what a network sees of each product, shape (features, rows)."""
    turned = products.transposed.astype(np.float64)
    found = _features(seconds, products.size, turned, target, ARRAYS)
    return np.array(found, dtype=np.float32)


def _features(
    seconds: Number,
    size: Size[Number],
    transposed: Number,
    target: Target,
    maths: Maths[Number],
) -> list[Any]:
    """Return numbers, and flags as they are: they become numbers with the rest."""
    log2, tanh = maths.log2, maths.tanh
    per_l2, per_s, per_sm = target.once(_per_device)
    batch, m, n, k, moved, peak = size
    width = batch * mean_width(size) * per_l2
    held = log2(moved * per_l2)
    found: list[Any] = [
        log2(m),
        log2(n),
        log2(k),
        log2(seconds * 1e6),
        log2(batch),
        transposed,
        held,
        log2(batch * m * n * k * 2 / peak / seconds),
        log2(moved * per_s / seconds),
        tanh((held + _LOG2_6) * _WARM),
        tanh((held + 1.0) * (2 * _WARM)),
        tanh((log2(m * k * width) + _LOG2_6) * _WARM),
        tanh((log2(k * n * width) + _LOG2_6) * _WARM),
        tanh((log2(m * n * width) + _LOG2_6) * _WARM),
    ]
    found += _tiling(m, n, batch * per_sm, maths)
    # Up to so many rows libraries have kernels of their own.
    found += (m <= 1, m <= 4, m <= 8, m <= 16, m <= 32, m <= 64, m <= 128)  # noqa: PLR2004
    found += (m % 2 == 1, m % 16 == 0)
    return found


def _tiling(m: Number, n: Number, each: Number, maths: Maths[Number]) -> list[Number]:
    """Return how well a product fills tiles and waves of them.

    How empty the last wave is for each of eight tiles, then how full all waves are, and
    how much of the tiles of 128 and 192 rows is padding. *each* is the batch over the
    number of SMs.
    """
    ceil = maths.ceil
    m32, m64, m128 = ceil(m * (1 / 32)), ceil(m * (1 / 64)), ceil(m * (1 / 128))
    m192, m256 = ceil(m * (1 / 192)), ceil(m * (1 / 256))
    n64, n128 = ceil(n * (1 / 64)) * each, ceil(n * (1 / 128)) * each
    n256 = ceil(n * (1 / 256)) * each
    waves = [m32 * n64, m64 * n64, m128 * n64, m64 * n128]
    waves += [m128 * n128, m192 * n128, m128 * n256, m256 * n128]
    found = [(count > 1) * (ceil(count) / count - 1.0) for count in waves]
    found += [count / (count + 1.0) for count in waves]
    found += [1.0 - m / (m128 * 128), 1.0 - m / (m192 * 192)]
    return found


def _per_device(target: Target) -> tuple[float, float, float]:
    """Return one over the bytes of L2, over those that memory moves, over the SMs."""
    device = target.device
    memory_rate = device.memory.bytes_per_s
    return 1 / device.l2.capacity_bytes, 1 / memory_rate, 1 / device.sm_count
