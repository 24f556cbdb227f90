"""What measured products of one GPU say beyond the model of `products`.

A library's choice of kernel for each size is no formula. Where thousands of products of
a GPU were measured, a small network says by which factor they differ from the model:
two layers of tanh over the sizes, what the model says of them, and how well they fill
tiles and waves. It is used for that GPU, type and range of sizes alone: on other GPUs
such corrections made things worse.

Weights are in `fitted/gemm_residual.npz`, written by `benchmarks/fit.py --what
products` from three quarters of the (n, k) of aiconfigurator's rows (Apache-2.0; CUDA
graphs; bf16: sglang 0.5.10, others: the libraries that its tables name), 2026-11.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.fitted_file import FOLDER
from perfc.costmodels.products import Products
from perfc.costmodels.protocol import Flags, Floats, Texts
from perfc.costmodels.target import Target

RESIDUAL_FILE = FOLDER / "gemm_residual.npz"
"""Weights by target, type of the rows and layer."""

_TILES = np.array(
    [[32, 64, 128, 64, 128, 192, 128, 256], [64, 64, 64, 128, 128, 128, 256, 128]],
    dtype=np.float64,
)[:, :, np.newaxis]
"""Tiles whose waves the network sees."""

_HEIGHTS = np.array([[128.0], [192.0]])
"""Tile heights whose padding it sees."""

_STEPS = np.array([[1.0], [4.0], [8.0], [16.0], [32.0], [64.0], [128.0]])
"""Numbers of rows up to which libraries have kernels of their own."""

SIGMA_SHARED, SIGMA_INDEPENDENT = 0.03, 0.1
"""Of products that are corrected: on held-out (n, k) of A100, H100 and L40S."""

SAME_KERNELS: Mapping[str, str] = {"fp16": "bf16"}
"""Types that were not measured, and the type that takes the same kernels."""

CORRECTED_AT_ONCE = 256
"""Rows corrected at a time: products so small that BLAS starts no threads for them."""

_Weights = NDArray[np.float32]


@attrs.frozen(eq=False)
class Network:
    """The correction of one type on one GPU.

    Attributes:
        mean: Of each feature; shape (features, 1), as `scale`.
        scale: What its deviation is divided by.
        layers: Weights and biases of each layer, shapes (out, in) and (out, 1).
        least: Sizes below which nothing was measured, shape (sizes, 1); of products m,
            n and k.
        most: The same above.
        limits: Least and most logarithm that measured rows asked for.

    """

    mean: _Weights
    scale: _Weights
    layers: tuple[tuple[_Weights, _Weights], ...]
    least: Floats
    most: Floats
    limits: tuple[float, float]

    def __call__(self, features: Floats) -> Floats:
        """Return the logarithm of measured / modelled, shape (rows,)."""
        at = ((features - self.mean) * (1 / self.scale)).astype(np.float32)
        for weights, bias in self.layers[:-1]:
            at = weights @ at
            at += bias
            np.tanh(at, out=at)
        weights, bias = self.layers[-1]
        found = (weights @ at + bias)[0].astype(np.float64)
        limited: Floats = np.clip(found, *self.limits)
        return limited


@functools.cache
def networks(path: Path = RESIDUAL_FILE) -> Mapping[tuple[str, str], Network]:
    """Return the networks of a file by target name and type."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    keys = sorted({tuple(name.split("/")[:2]) for name in arrays})
    return {(name, dtype): _network(f"{name}/{dtype}", arrays) for name, dtype in keys}


def _network(key: str, arrays: Mapping[str, NDArray[np.generic]]) -> Network:
    def part(name: str) -> _Weights:
        return np.asarray(arrays[f"{key}/{name}"], dtype=np.float32)

    count = sum(name.startswith(f"{key}/weights") for name in arrays)
    layers = tuple((part(f"weights{i}"), part(f"bias{i}")) for i in range(count))
    ends = part("sizes").astype(np.float64)
    low, high = part("limits").tolist()
    return Network(part("mean"), part("scale"), layers, ends[0], ends[1], (low, high))


def has_network(target: Target, dtype: str) -> bool:
    """Whether products of a type were measured on a GPU in thousands."""
    return (target.name, SAME_KERNELS.get(dtype, dtype)) in networks()


def correct(
    seconds: Floats, products: Products, dtypes: Texts, target: Target
) -> Flags:
    """Correct the model's *seconds* in place; return which rows were measured alike.

    Args:
        seconds: What the model says, shape (rows,).
        products: Of what.
        dtypes: What their tensors are stored in.
        target: On which GPU.

    """
    known = np.zeros(len(seconds), dtype=np.bool_)
    for (name, dtype), network in networks().items():
        if name != target.name:
            continue
        alike = [dtype, *(new for new, old in SAME_KERNELS.items() if old == dtype)]
        inside = measured(products, network)
        inside &= functools.reduce(np.logical_or, [dtypes == word for word in alike])
        if inside.any():
            part = products if inside.all() else products.part(inside)
            seconds[inside] *= factors(network, seconds[inside], part, target)
            known |= inside
    return known


def measured(products: Products, network: Network) -> Flags:
    """Return which products are of sizes that were measured."""
    sizes = products.sizes
    inside = (sizes[1:] >= network.least) & (sizes[1:] <= network.most)
    found: Flags = inside.all(axis=0) & (sizes[0] == 1)
    return found


def factors(
    network: Network, seconds: Floats, products: Products, target: Target
) -> Floats:
    """Return by what to multiply the model's *seconds* of measured sizes."""
    parts = [
        network(features_of(seconds[part], products.part(part), target))
        for at in range(0, len(seconds), CORRECTED_AT_ONCE)
        for part in (slice(at, at + CORRECTED_AT_ONCE),)
    ]
    return np.exp(np.concatenate(parts))


def features_of(seconds: Floats, products: Products, target: Target) -> Floats:
    """Return what a network sees of each product, shape (features, rows)."""
    device = target.device
    _, m, n, k = products.sizes
    held = products.bytes * (1 / device.l2.capacity_bytes)
    flops_s = 2 * m * n * k / products.peak
    memory_s = products.bytes * (1 / device.memory.bytes_per_s)
    logs = np.log2(
        np.stack((m, n, k, seconds * 1e6, flops_s / seconds, memory_s / seconds, held))
    )
    near = np.log(2) * logs[-1]
    warm = np.tanh(np.stack((1.5 * (near + np.log(6)), 3 * (near + np.log(2)))))
    tiles = np.ceil(m * (1 / _TILES[0])) * np.ceil(n * (1 / _TILES[1]))
    waves = tiles * (1 / device.sm_count)
    tail = np.where(waves > 1, np.ceil(waves) / waves - 1, 0.0)
    filled = waves / (waves + 1)
    padding = np.ceil(m * (1 / _HEIGHTS)) * _HEIGHTS / m
    padding = 1 - 1 / padding
    odd = np.stack((m % 2 == 1, m % 16 == 0))
    return np.concatenate((logs, warm, tail, filled, padding, m <= _STEPS, odd))
