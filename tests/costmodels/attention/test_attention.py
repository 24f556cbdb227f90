"""Tiles of queries, the keys they walk through, and what rows say beyond."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.costmodels.signatures import ALL_MODELS

from perfc.costmodels import Provenance, load_target, price
from perfc.costmodels.attention import ATTENTION, ATTENTION_RESIDUAL_FILE
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


def few(
    q_len: int,
    kv_len: int,
    *,
    batch: int = 1,
    heads: int = 32,
    kv_heads: int = 0,
    dtype: str = "bf16",
    algorithm: str = "flash",
    head_dim: int = 128,
) -> Kernel:
    """Return the signature of attention whose bytes are those of the heads of keys."""
    params: dict[str, AttrValue] = {
        "batch": batch,
        "heads": heads,
        "q_len": q_len,
        "kv_len": kv_len,
        "head_dim": head_dim,
        "algorithm": algorithm,
    }
    if kv_heads:
        params["kv_heads"] = kv_heads
    each = (4 if dtype == "fp32" else 2) * batch * head_dim
    queries = each * heads * q_len
    keys = each * (kv_heads or heads) * kv_len
    flops = 4 * batch * heads * q_len * kv_len * head_dim
    work = Work(flops, queries + 2 * keys, queries)
    return Kernel("attention", dtype, dtype, Record(params), work)


_KERNELS = (("bf16", "flash"), ("bf16", "efficient"), ("fp32", "efficient"))
_TARGETS = ("a100", "h100", "l40s")


@given(
    target=st.sampled_from(_TARGETS),
    kernel=st.sampled_from(_KERNELS),
    head_dim=st.sampled_from((64, 80, 128, 256)),
    sizes=st.fixed_dictionaries(
        {
            "q_len": st.integers(1, 64),
            "kv_len": st.integers(1, 33_000),
            "batch": st.integers(1, 64),
            "heads": st.integers(1, 64),
        }
    ),
    grown=st.sampled_from(("q_len", "kv_len", "batch", "heads")),
    by=st.integers(1, 200),
)
@settings(max_examples=300, deadline=None)
def test_more_work_never_takes_less(
    target: str,
    kernel: tuple[str, str],
    head_dim: int,
    sizes: dict[str, int],
    grown: str,
    by: int,
) -> None:
    """Few queries: more of them, of keys, of heads or of sequences take no less."""
    more = {**sizes, grown: sizes[grown] + by}
    assume(more["q_len"] <= 64)
    # As many queries as keys were measured: networks correct the formula there.
    assume(all(each["q_len"] != each["kv_len"] for each in (sizes, more)))
    dtype, algorithm = kernel

    def one(each: dict[str, int]) -> Kernel:
        return few(
            each["q_len"],
            each["kv_len"],
            batch=each["batch"],
            heads=each["heads"],
            dtype=dtype,
            algorithm=algorithm,
            head_dim=head_dim,
        )

    less_us, more_us = us(target, one(sizes), one(more))

    assert more_us >= less_us * (1 - 1e-9)


@pytest.mark.parametrize("target", ["a100", "h100"])
@pytest.mark.parametrize("batch", [1, 2, 4, 5, 32])
def test_decoding_of_any_batch_reads_near_the_memory_rate(
    target: str, batch: int
) -> None:
    """Steps of all heads are distributed: no SM is idle for want of whole blocks."""
    kernel = few(1, 32768, batch=batch)
    memory_us = kernel.work.bytes / load_target(target).device.memory.bytes_per_s * 1e6

    (found,) = us(target, kernel)

    assert 1.0 < found / memory_us < 1.3


@pytest.mark.parametrize("kernel", _KERNELS)
@pytest.mark.parametrize("target", ["a100", "h100", "v100", "t4"])
@pytest.mark.parametrize("heads", [1, 32, 200])
def test_no_sm_loads_more_than_its_port_lets_through(
    target: str, kernel: tuple[str, str], heads: int
) -> None:
    """64 bytes a clock from L2: of one block where keys are not split."""
    dtype, algorithm = ("fp16" if kernel[0] == "bf16" else "fp32"), kernel[1]
    priced = few(1, 32768, heads=heads, dtype=dtype, algorithm=algorithm)
    device = load_target(target).device
    whole = algorithm == "efficient" or target in {"v100", "t4"}
    sms = min(heads, device.sm_count) if whole else device.sm_count

    (found_us,) = us(target, priced)

    rate = priced.work.bytes / sms / (found_us * 1e-6)
    assert rate < 64 * device.sm_clock_hz


def test_a_memory_efficient_block_walks_through_all_keys_alone() -> None:
    """One head on A100: 8 steps, each of a tile in TF32 thrice and of two loads.

    32 queries x 128 keys x 4 x 128 FLOP at half of 156 / 3 / 108 TFLOP/s are 8.7
    us, and 0.9 us go for waiting; half a GPU of such blocks takes as long.
    """
    one_us, half_us = us(
        "a100",
        few(1, 1024, heads=1, dtype="fp32", algorithm="efficient"),
        few(1, 1024, heads=64, dtype="fp32", algorithm="efficient"),
    )

    assert one_us == pytest.approx(8 * (8.7 + 0.1 + 0.9) + 5.5, rel=0.03)
    assert half_us == pytest.approx(one_us, rel=0.01)


def test_before_ampere_half_precision_is_memory_efficient_too() -> None:
    """There is no flash attention on V100, whatever the name says."""
    named, unnamed = us(
        "v100",
        few(1, 4096, dtype="fp16", algorithm="efficient"),
        few(1, 4096, dtype="fp16", algorithm=""),
    )

    assert named == unnamed


def test_heads_that_share_keys_take_the_time_of_their_bytes() -> None:
    """32 heads on 8 of keys: near a quarter of 32 of their own, and as 8 alone."""
    own, grouped, alone = us(
        "a100",
        few(1, 32768, batch=8),
        few(1, 32768, batch=8, kv_heads=8),
        few(1, 32768, batch=8, heads=8),
    )

    assert 3.5 < own / grouped < 4.0
    assert grouped == pytest.approx(alone, rel=0.01)


def test_rows_of_flash_attention_say_nothing_of_another_kernel() -> None:
    """H100's are of version 3: PyTorch's flash attention and the other are analytic."""
    names = ("", "flash", "efficient")
    kernels = [few(2048, 2048, algorithm=name) for name in names]

    priced = price(kernels, H100, MODELS)
    alone = [price([kernel], H100, MODELS) for kernel in kernels]

    analytic = [Provenance.ANALYTIC] * 2
    assert [Provenance.FITTED, *analytic] == list(priced.provenance)
    assert [float(each.seconds[0]) for each in alone] == pytest.approx(
        priced.seconds.tolist()
    )


@pytest.mark.parametrize(("head_dim", "least"), [(64, 0.3), (128, 0.34)])
def test_version_2_on_hopper(head_dim: int, least: float) -> None:
    """It reaches some 35 % of the peak (arXiv 2407.08608), version 3 far more."""
    named, newest = us(
        "h100",
        *(
            few(8192, 8192, batch=2, heads=32, head_dim=head_dim, algorithm=name)
            for name in ("flash", "")
        ),
    )

    flops = 4 * 2 * 32 * 8192**2 * head_dim
    peak = H100.device.peak("bf16")
    assert least < flops / (named * 1e-6) / peak < least + 0.05
    assert newest < 0.75 * named


def test_version_2_is_what_others_have_elsewhere() -> None:
    """A name says nothing new on L40S."""
    named, unnamed = us("l40s", few(512, 512, algorithm="flash"), few(512, 512))

    assert named == unnamed


def _by(algorithm: str, kernel: Kernel) -> Kernel:
    return attrs.evolve(kernel, params=kernel.params.updated(algorithm=algorithm))


@pytest.mark.parametrize("target", ["a100", "h100", "l40s", "b200"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_newer_versions_take_no_longer(target: str, phase: str) -> None:
    """Version 1, version 2, then what is newest for the GPU; one price in any table."""
    kernel = attention(4096, 4096, head_dim=128, causal=True)
    kernel = attrs.evolve(kernel, params=kernel.params.updated(phase=phase))

    first, second, third = us(
        target, *(_by(name, kernel) for name in ("flash-1", "flash-2", "flash-3"))
    )

    assert first > 1.5 * second
    assert second >= third
    assert [first] == us(target, _by("flash-1", kernel))
    assert [second] == us(target, _by("flash", kernel))


def test_version_1_is_not_known_from_rows_of_later_ones() -> None:
    """Neither what was fitted to an L40S nor its interval speak of it."""
    kernel = attention(2048, 2048, batch=8)
    second, first = (
        price([_by(name, kernel)], L40S, MODELS) for name in ("flash-2", "flash-1")
    )

    assert Provenance.FITTED is second.provenance[0]
    assert Provenance.ANALYTIC is first.provenance[0]
    assert first.sigma_shared[0] > second.sigma_shared[0]
