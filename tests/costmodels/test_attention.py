"""Tiles of queries, the keys they walk through, and what rows say beyond."""

from __future__ import annotations

import numpy as np
import pytest
from tests.costmodels.kernels import ALL_MODELS

from perfc.costmodels import (
    ATTENTION,
    ATTENTION_RESIDUAL_FILE,
    Provenance,
    load_target,
    price,
)
from perfc.ir import AttrValue, Kernel, Record, Work

H100, L40S, A100 = load_target("h100"), load_target("l40s"), load_target("a100")
MODELS = (*ALL_MODELS, ATTENTION)


def attention(
    q_len: int, kv_len: int, *, head_dim: int = 64, batch: int = 4, causal: bool = False
) -> Kernel:
    """Return the signature of attention with 16 heads in bf16."""
    heads = batch * 16
    params: dict[str, AttrValue] = {
        "batch": batch,
        "heads": 16,
        "q_len": q_len,
        "kv_len": kv_len,
        "head_dim": head_dim,
        "causal": causal,
    }
    read = 2 * heads * (q_len + 2 * kv_len) * head_dim
    work = Work(
        4 * heads * q_len * kv_len * head_dim, read, 2 * heads * q_len * head_dim
    )
    return Kernel("attention", "bf16", "bf16", Record(params), work)


def us(target: str, *kernels: Kernel) -> list[float]:
    """Return what kernels take on a target, in microseconds."""
    found = price(kernels, load_target(target), MODELS).seconds * 1e6
    return [float(value) for value in found]


@pytest.mark.parametrize("target", ["h100", "l40s", "a100"])
def test_a_causal_mask_ends_the_walk_early(target: str) -> None:
    """Half of the keys are seen, and the tiles on the diagonal in full."""
    whole, masked = us(
        target,
        attention(8192, 8192, head_dim=128),
        attention(8192, 8192, head_dim=128, causal=True),
    )

    assert 0.5 < masked / whole < 0.56


@pytest.mark.parametrize("target", ["h100", "l40s", "a100"])
def test_decoding_splits_the_keys(target: str) -> None:
    """One query over many keys takes all SMs, not one: near the memory's rate."""
    kernel = attention(1, 65536, head_dim=128, batch=1)
    memory_us = kernel.work.bytes / load_target(target).device.memory.bytes_per_s * 1e6

    (found,) = us(target, kernel)

    assert 1.0 < found / memory_us < 2.5


def test_heads_are_padded_to_those_of_kernels() -> None:
    """A head of 104 numbers takes as long as one of 128."""
    padded, full = us(
        "a100",
        attention(4096, 4096, head_dim=104),
        attention(4096, 4096, head_dim=128),
    )

    assert padded == pytest.approx(full, rel=0.01)


def test_rows_correct_only_sizes_like_theirs() -> None:
    """The networks know forward without a mask, one length, heads of 64 to 80."""
    kernels = [
        attention(2048, 2048),
        attention(2048, 2048, causal=True),
        attention(2048, 1024),
        attention(2048, 2048, head_dim=128),
    ]
    with np.load(ATTENTION_RESIDUAL_FILE) as stored:
        known = {name.split("/")[0] for name in stored.files}

    priced = price(kernels, H100, MODELS)
    elsewhere = price(kernels, A100, MODELS)

    assert {H100.name, L40S.name} == known
    assert [Provenance.FITTED] * 4 == list(priced.provenance)
    assert [Provenance.ANALYTIC] * 4 == list(elsewhere.provenance)
    assert priced.sigma_independent[0] < min(priced.sigma_independent[1:])
    assert elsewhere.sigma_shared.min() > priced.sigma_shared.max()
