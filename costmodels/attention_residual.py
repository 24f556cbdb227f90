"""What measured attention of one GPU says beyond the formula of `attention`.

A small network as for products (`gemm_residual`): by which factor kernels differ from
the formula, from their sizes and how well these fill tiles and waves. It is used on
that GPU alone, for sizes within those measured: forward, without a mask, queries and
keys of one length, in half precision.

Weights are in `fitted/attention_residual.npz`, written by `make fit` from half of
aiconfigurator's rows (Apache-2.0; CUDA graphs, vLLM 0.24: FlashAttention 3 on H100 and
2 on L40S). PyTorch's own kernel is FlashAttention 2: on H100 expect it slower.
"""

from __future__ import annotations

import numpy as np

from perfc.costmodels.fitted_file import FOLDER
from perfc.costmodels.network import networks
from perfc.costmodels.protocol import Flags, Floats, KernelTable
from perfc.costmodels.target import Target

ATTENTION_RESIDUAL_FILE = FOLDER / "attention_residual.npz"
"""Weights by target, type and layer."""

ATTENTION_TYPE = "bf16"
"""The type that was measured; fp16 takes the same kernels."""

_TILES = np.array([[64.0], [64.0], [128.0], [128.0], [192.0], [192.0]])
_PER_SM = np.array([[1.0], [2.0], [1.0], [2.0], [1.0], [2.0]])
"""Tiles of queries, and how many run on an SM at a time, whose waves it sees."""

_HEIGHTS = np.array([[64.0], [128.0], [144.0], [192.0]])
"""Tiles whose padding it sees."""


def attention_sizes(kernels: KernelTable) -> Floats:
    """Return what the range that was measured is told by, shape (4, rows)."""
    names = ("batch", "heads", "q_len", "head_dim")
    return np.stack([kernels.param(name, 1.0) for name in names])


def measured_rows(kernels: KernelTable, target: Target) -> Flags:
    """Return which kernels are of sizes that were measured on this GPU."""
    network = networks(ATTENTION_RESIDUAL_FILE).get((target.name, ATTENTION_TYPE))
    if network is None:
        return np.zeros(len(kernels), dtype=np.bool_)
    sizes = attention_sizes(kernels)
    found = ((sizes >= network.least) & (sizes <= network.most)).all(axis=0)
    found &= kernels.param("q_len", 1.0) == kernels.param("kv_len", 1.0)
    found &= np.isin(kernels.math, (ATTENTION_TYPE, "fp16")) & ~kernels.given("causal")
    inside: Flags = found & (kernels.text("phase", "forward") == "forward")
    return inside


def corrected_seconds(seconds: Floats, kernels: KernelTable, target: Target) -> Floats:
    """Return the formula's *seconds* of measured sizes as the rows correct them."""
    network = networks(ATTENTION_RESIDUAL_FILE)[target.name, ATTENTION_TYPE]
    features = attention_features(seconds, kernels, target)
    return seconds * np.exp(network(features))


def attention_features(seconds: Floats, kernels: KernelTable, target: Target) -> Floats:
    """Return what a network sees of each kernel, shape (features, rows)."""
    batch, heads, q_len, head_dim = attention_sizes(kernels)
    amounts = (batch, heads, batch * heads, q_len, seconds * 1e6)
    logs = np.log2(np.stack(amounts))
    whole = np.stack((head_dim % 64 == 0, head_dim % 16 == 0))
    blocks = batch * heads * np.ceil(q_len / _TILES)
    waves = blocks / (target.device.sm_count * _PER_SM)
    tail = np.where(waves > 1, np.log2(np.ceil(waves) / waves), 0.0)
    filled = np.clip(np.log2(waves), -3.0, 3.0)
    padding = np.log2(np.ceil(q_len / _HEIGHTS) * _HEIGHTS / q_len)
    return np.concatenate((logs, whole, tail, filled, padding))
