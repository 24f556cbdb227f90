"""What measured attention of one GPU says beyond the formula of `attention`.

A small network as for GEMMs (`gemm_residual`): by which factor kernels differ from
the formula, from their sizes and how well these fill tiles and waves. It is used on
that GPU and others with the same chip, for sizes within those measured: forward,
without a mask, queries and keys of one length, in half precision.

Weights are in `fitted/attention_residual.npz`, written by `make fit` from half of
aiconfigurator's rows (Apache-2.0; CUDA graphs, vLLM 0.24: FlashAttention 3 on H100 and
2 on L40S). PyTorch's own kernel is FlashAttention 2: on H100 expect it slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perfc.costmodels.attention import tiles
from perfc.costmodels.fitted_files import FITTED_FOLDER, Network, network_of
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Flags,
    Floats,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Signatures,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.sheets import nominal

ATTENTION_RESIDUAL_FILE = FITTED_FOLDER / "attention_residual.npz"
"""Weights by target, type and layer."""

ATTENTION_TYPE = "bf16"
"""The type that was measured; fp16 takes the same kernels."""

_TILES = (64, 128, 192)
"""Tiles of queries whose waves it sees, where one runs on an SM at a time, and two."""

_AT_WAVES = (5, 8, 11)
"""Indices of the waves of each of `_TILES` among the logarithms."""

_HEIGHTS = (64, 128, 144, 192)
"""Tiles whose padding it sees."""


def attention_sizes(kernels: KernelTable) -> Floats:
    """Return the sizes that bound the measured range, shape (4, rows)."""
    return np.array(_sizes(kernels.signatures))


def _sizes(kernels: Signatures[Number]) -> tuple[Number, ...]:
    param = kernels.param
    batch, heads = param("batch", 1.0), param("heads", 1.0)
    return batch, heads, param("q_len", 1.0), param("head_dim", 1.0)


def measured_rows(kernels: KernelTable, target: Target) -> Flags:
    """Return which kernels are of sizes measured on this GPU or one of its chip."""
    network = target.once(_network)
    if network is None:
        return np.zeros(len(kernels), dtype=np.bool_)
    sizes = attention_sizes(kernels)
    found = ((sizes >= network.least) & (sizes <= network.most)).all(axis=0)
    alike = _is_alike(kernels.signatures, target)
    return np.logical_and(found, alike)


def is_measured(kernel: OneSignature, target: Target) -> bool:
    """Whether one kernel is."""
    return kernel.once(target.once(_measures))


def _measures(target: Target) -> Callable[[OneSignature], bool]:
    network = target.once(_network)

    def measures(kernel: OneSignature) -> bool:
        if network is None or not _is_alike(kernel, target):
            return False
        return network.covers(kernel.once(_sizes))

    return measures


def _is_alike(kernels: Signatures[Number], target: Target) -> Flags | bool:
    """Whether kernels are such as were measured, but for their sizes."""
    mode = kernels.math
    found: Flags | bool = kernels.param("q_len") == kernels.param("kv_len")
    found = found & ((mode == ATTENTION_TYPE) | (mode == "fp16"))
    found = found & (kernels.param("causal") == 0)
    found = found & (kernels.text("algorithm") != tiles.EFFICIENT_NAME)
    found = found & tiles.is_newest(kernels, target)
    found = found & (kernels.text("algorithm") != tiles.FLASH_1_NAME)
    forward: Flags | bool = kernels.text("phase") == "forward"
    return found & forward


def _network(target: Target) -> Network | None:
    asked = target.once(nominal) or target
    found = network_of(ATTENTION_RESIDUAL_FILE, asked, ATTENTION_TYPE)
    return None if found is None else found[1]


def corrected_seconds(seconds: Floats, kernels: KernelTable, target: Target) -> Floats:
    """Return the formula's *seconds* of measured sizes as the rows correct them."""
    network = target.once(_network)
    if network is None:
        return seconds
    features = attention_features(seconds, kernels, target)
    return seconds * np.exp(network(features))


def corrected_second(seconds: float, kernel: OneSignature, target: Target) -> float:
    """Return the formula's *seconds* of one kernel as the rows correct them."""
    network = target.once(_network)
    if network is None:
        return seconds
    features = _features(seconds, kernel.once(_sizes), target, FLOATS)
    return seconds * FLOATS.exp(network.of_one(features))


def attention_features(seconds: Floats, kernels: KernelTable, target: Target) -> Floats:
    """Return the network's features of each kernel, shape (features, rows)."""
    return np.array(_features(seconds, _sizes(kernels.signatures), target, ARRAYS))


def _features(
    seconds: Number,
    sizes: tuple[Number, ...],
    target: Target,
    maths: Maths[Number],
) -> list[Any]:
    ceil, least, most = maths.ceil, maths.least, maths.most
    batch, heads, q_len, head_dim = sizes
    walks, sm_count = batch * heads, target.device.sm_count
    logs: list[Number] = [batch, heads, walks, q_len, seconds * 1e6]
    waves: list[Number] = [ceil(q_len / tile) * walks / sm_count for tile in _TILES]
    for wave in waves:
        logs += (wave, ceil(wave), ceil(wave * 0.5))
    for height in _HEIGHTS:
        logs.append(ceil(q_len / height) * height / q_len)
    logs = maths.logs2(logs)
    found: list[Any] = logs[:5]
    found += (head_dim % 64 == 0, head_dim % 16 == 0)  # numbers with the rest
    # How empty the last wave is, how full all are, and what padding adds to tiles.
    full: list[Any] = []
    for wave, at in zip(waves, _AT_WAVES, strict=True):
        log, half = logs[at], logs[at] - 1.0
        found += ((wave > 1) * (logs[at + 1] - log), (wave > 2) * (logs[at + 2] - half))  # noqa: PLR2004
        full += (least(most(log, -3.0), 3.0), least(most(half, -3.0), 3.0))
    return found + full + logs[-len(_HEIGHTS) :]
