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
from collections.abc import Mapping, Sequence

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

_HEIGHTS = (32, 64, 128, 192, 256)
_WIDTHS = (64, 128, 256)
_TILES = (
    *((32, 64), (64, 64), (128, 64), (64, 128)),
    *((128, 128), (192, 128), (128, 256), (256, 128)),
)
"""Tiles whose waves the network sees."""

_PER_HEIGHT = tuple(1 / height for height in _HEIGHTS)
_PER_WIDTH = tuple(1 / width for width in _WIDTHS)
_TILES_AT = tuple((_HEIGHTS.index(h), _WIDTHS.index(w)) for h, w in _TILES)
"""Where the height and the width of each are."""

_PADDED = (128, 192)
"""Tile heights whose padding it sees."""

_STEPS = (1, 4, 8, 16, 32, 64, 128)
"""Numbers of rows up to which libraries have kernels of their own."""

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
    batch, m, n, k = size[:4]
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
) -> Sequence[Number]:
    device, log2, tanh = target.device, maths.log2, maths.tanh
    m, n, k, moved = size.m, size.n, size.k, size.bytes
    per_l2 = 1 / device.l2.capacity_bytes
    held = log2(moved * per_l2)
    ceil, flag = maths.ceil, maths.flag
    flops = size.batch * m * n * k * 2
    width = size.batch * mean_width(size) * per_l2
    found: list[Number] = [log2(m), log2(n), log2(k), log2(seconds * 1e6)]
    found += [
        log2(size.batch),
        transposed,
        held,
        log2(flops / size.peak / seconds),
        log2(moved * (1 / device.memory.bytes_per_s) / seconds),
        tanh((held + _LOG2_6) * _WARM),
        tanh((held + 1.0) * (2 * _WARM)),
        tanh((log2(m * k * width) + _LOG2_6) * _WARM),
        tanh((log2(k * n * width) + _LOG2_6) * _WARM),
        tanh((log2(m * n * width) + _LOG2_6) * _WARM),
    ]
    found += _waves(size, 1 / device.sm_count, maths)
    found += [1.0 - m / (ceil(m * (1 / height)) * height) for height in _PADDED]
    found += [flag(m <= step) for step in _STEPS]
    found += [flag(m % 2 == 1), flag(m % 16 == 0)]
    return found


def _waves(size: Size[Number], per_sm: float, maths: Maths[Number]) -> list[Number]:
    """Return how empty the last wave of each tile is, then how full all waves are."""
    ceil, most = maths.ceil, maths.most
    each = size.batch * per_sm
    rows = [ceil(size.m * per_height) for per_height in _PER_HEIGHT]
    columns = [ceil(size.n * per_width) * each for per_width in _PER_WIDTH]
    waves = [rows[height] * columns[width] for height, width in _TILES_AT]
    several = [most(count, 1.0) for count in waves]
    empty = [ceil(count) / count - 1.0 for count in several]
    return empty + [count / (count + 1.0) for count in waves]
