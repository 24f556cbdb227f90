"""What measured products of one GPU say beyond the model of `products`.

A library's choice of kernel for each size is no formula. Where thousands of products of
a GPU were measured, a small network says by which factor they differ from the model:
two layers of tanh over the sizes, what the model says of them, and how well they fill
tiles and waves. It is used for that GPU, type and range of sizes alone: on other GPUs
such corrections made things worse.

Weights are in `fitted/gemm_residual.npz`, written by `benchmarks/fit_kernels.py --fit`
from three quarters of the (n, k) of aiconfigurator's bf16 rows (Apache-2.0; CUDA
graphs, sglang 0.5.10), 2026-11.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.fitted_file import FOLDER
from perfc.costmodels.products import CHUNK, Products
from perfc.costmodels.protocol import Floats
from perfc.costmodels.target import Target

RESIDUAL_FILE = FOLDER / "gemm_residual.npz"
"""Weights by target and layer."""

_TILES = np.array(
    [[32, 64, 128, 64, 128, 192, 128, 256], [64, 64, 64, 128, 128, 128, 256, 128]],
    dtype=np.float64,
)
"""Tiles whose waves the network sees."""

_HEIGHTS = np.array([128.0, 192.0])
"""Tile heights whose padding it sees."""

_STEPS = np.array([1.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
"""Numbers of rows up to which libraries have kernels of their own."""

_MOST = 1.0
"""Corrections are at most e: what the rows held."""

SIGMA_SHARED, SIGMA_INDEPENDENT = 0.03, 0.1
"""Of products that are corrected: on held-out (n, k) of A100, H100 and L40S."""

RESIDUAL_MODES = ("bf16", "fp16")
"""Math modes that are corrected: bf16 was measured, fp16 takes the same kernels."""

_Weights = NDArray[np.float32]


@attrs.frozen(eq=False)
class Network:
    """The correction of one GPU.

    Attributes:
        mean: Of each feature; shape (features,), as `scale`.
        scale: What its deviation is divided by.
        layers: Weights and biases of each layer, shapes (in, out) and (out,).
        least: Sizes m, n, k below which nothing was measured, shape (3,).
        most: The same above.

    """

    mean: _Weights
    scale: _Weights
    layers: tuple[tuple[_Weights, _Weights], ...]
    least: Floats
    most: Floats

    def __call__(self, features: Floats) -> Floats:
        """Return the logarithm of measured / modelled, shape (rows,)."""
        at = ((features - self.mean) * (1 / self.scale)).astype(np.float32)
        for weights, bias in self.layers[:-1]:
            at = np.tanh(at @ weights + bias)
        weights, bias = self.layers[-1]
        found = (at @ weights + bias)[:, 0].astype(np.float64)
        return np.clip(found, -_MOST, _MOST)


@functools.cache
def networks(path: Path = RESIDUAL_FILE) -> Mapping[str, Network]:
    """Return the networks of a file by target name."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    targets = {name.split("/")[0] for name in arrays}
    return {target: _network(target, arrays) for target in sorted(targets)}


def _network(target: str, arrays: Mapping[str, NDArray[np.generic]]) -> Network:
    def part(name: str) -> _Weights:
        return np.asarray(arrays[f"{target}/{name}"], dtype=np.float32)

    count = sum(name.startswith(f"{target}/weights") for name in arrays)
    layers = tuple((part(f"weights{i}"), part(f"bias{i}")) for i in range(count))
    ends = part("sizes").astype(np.float64)
    return Network(part("mean"), part("scale"), layers, ends[0], ends[1])


def measured_rows(products: Products, target: Target) -> NDArray[np.bool_]:
    """Return which products are of sizes that were measured on this GPU."""
    network = networks().get(target.name)
    sizes = products.sizes
    if network is None:
        return np.zeros(len(sizes), dtype=np.bool_)
    inside = (sizes[:, 1:] >= network.least) & (sizes[:, 1:] <= network.most)
    found: NDArray[np.bool_] = inside.all(axis=1) & (sizes[:, 0] == 1)
    return found


def corrected_seconds(seconds: Floats, products: Products, target: Target) -> Floats:
    """Return the model's *seconds* of measured sizes as the rows correct them."""
    network = networks()[target.name]
    parts = [
        network(features_of(seconds[part], products.part(part), target))
        for at in range(0, len(seconds), CHUNK)
        for part in (slice(at, at + CHUNK),)
    ]
    return seconds * np.exp(np.concatenate(parts))


def features_of(seconds: Floats, products: Products, target: Target) -> Floats:
    """Return what a network sees of each product, shape (rows, features)."""
    device = target.device
    _, m, n, k = products.sizes.T
    held = products.bytes * (1 / device.l2.capacity_bytes)
    flops_s = 2 * m * n * k / products.peak
    memory_s = products.bytes * (1 / device.memory.bytes_per_s)
    amounts = (m, n, k, seconds * 1e6, flops_s / seconds, memory_s / seconds, held)
    logs = np.log2(np.stack(amounts, axis=1))
    warm = np.tanh(np.stack((1.5 * np.log(6 * held), 3 * np.log(2 * held)), axis=1))
    rows, columns = m[:, np.newaxis], n[:, np.newaxis]
    tiles = np.ceil(rows / _TILES[0]) * np.ceil(columns / _TILES[1])
    waves = tiles * (1 / device.sm_count)
    tail = np.where(waves > 1, np.log2(np.ceil(waves) / waves), 0.0)
    filled = np.clip(np.log2(waves), -3.0, 3.0)
    padding = np.log2(np.ceil(rows / _HEIGHTS) * _HEIGHTS / rows)
    odd = np.stack((m % 2 == 1, m % 16 == 0), axis=1)
    parts = (logs, warm, tail, filled, padding, rows <= _STEPS, odd)
    return np.concatenate(parts, axis=1)
