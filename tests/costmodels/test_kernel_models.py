"""What the built-in cost models say, and how it changes with the sizes."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.costmodels.signatures import (
    ALL_MODELS,
    bag,
    conv,
    copy,
    gemm,
    over_rows,
    unknown,
)

from perfc.costmodels import (
    KernelTable,
    Provenance,
    load_target,
    lower_bound,
    price,
    target_names,
)
from perfc.ir import Kernel, PerfcError, Record

V100 = load_target("v100-sxm2-16g")
A100 = load_target("a100-sxm-80g")
ROW_OPS = ("elementwise", "softmax", "layer_norm", "batch_norm", "reduction", "concat")

sizes = st.integers(1, 4096)


def seconds(*kernels: Kernel, target: str = "v100-sxm2-16g") -> list[float]:
    """Price kernels with the built-in models."""
    priced = price(kernels, load_target(target), ALL_MODELS)
    return [float(s) for s in priced.seconds]


@st.composite
def any_kernel(draw: st.DrawFn) -> Kernel:
    """One kernel of any kind."""
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    return draw(
        st.sampled_from(
            [
                gemm(m, n, k),
                gemm(m, 64, 64, b=k),
                conv(64, n, 1 + k % 64, kernel=1 + 2 * (m % 3)),
                *(over_rows(op, m, n) for op in ROW_OPS),
                over_rows("pool", m, n),
                over_rows("gather", m, n),
                over_rows("transpose", m, n),
                bag(m, 1 + n % 26, 1 + k * n, 1 + k % 100, 1 + n % 256),
                copy(m * n),
                copy(m * n, "d2h", pinned=False),
                copy(m * n, "d2d"),
                unknown(m * n),
            ]
        )
    )


@given(
    kernels=st.lists(any_kernel(), min_size=1, max_size=8),
    name=st.sampled_from(target_names()),
)
@settings(deadline=None)
def test_never_below_the_bound(kernels: list[Kernel], name: str) -> None:
    """Nothing is faster than its bytes and flops at the peak rates, nor free."""
    target = load_target(name)

    priced = price(kernels, target, ALL_MODELS)
    bound_s = lower_bound(KernelTable(kernels), target)

    assert [] == [
        kernel
        for kernel, found_s, least_s in zip(
            kernels, priced.seconds, bound_s, strict=True
        )
        if found_s < least_s or found_s <= 0
    ]


@given(kernels=st.lists(any_kernel(), min_size=1, max_size=20))
@settings(deadline=None)
def test_prices_do_not_depend_on_company(kernels: list[Kernel]) -> None:
    """A kernel costs the same alone as in a table."""
    together = seconds(*kernels)

    assert [seconds(kernel)[0] for kernel in kernels] == pytest.approx(together)


@given(m=sizes, n=sizes, k=sizes, b=st.integers(1, 64))
@settings(deadline=None)
def test_gemms_grow_with_depth_and_batch(m: int, n: int, k: int, b: int) -> None:
    """A GEMM with more to sum, or more GEMMs, is no faster.

    But for what the model leaves: the kernel of the shortest longest time is taken, and
    costs the norm of three. Of kernels that are as good the one for more GEMMs may
    have the shorter others; among 180,000 GEMMs by 7e-6 of its time at most. Of a
    GPU without rows: what rows say need not grow.
    """
    gemms = (
        gemm(m, n, k, b=b + 1),
        gemm(m, n, 2 * k, b=b + 1),
        gemm(m, n, k, b=2 * (b + 1)),
    )
    small, deeper, more = seconds(*gemms, target="2080ti")

    assert small <= deeper * (1 + 1e-12)
    assert small <= more * (1 + 1e-4)


@pytest.mark.parametrize("op", [*ROW_OPS, "pool", "gather", "transpose"])
@given(rows=st.integers(1, 1 << 16), cols=sizes)
@settings(deadline=None, max_examples=30)
def test_streams_grow_with_rows(op: str, rows: int, cols: int) -> None:
    """A kernel over more rows is no faster."""
    small, large = seconds(over_rows(op, rows, cols), over_rows(op, 2 * rows, cols))

    assert small <= large


@given(batch=sizes, rows=st.integers(1, 10**7), pooling=st.integers(1, 100))
@settings(deadline=None)
def test_lookups_grow_with_batch_and_pooling(
    batch: int, rows: int, pooling: int
) -> None:
    """More bags, or more rows per bag, are no faster."""
    small, larger, deeper = seconds(
        bag(batch, 4, rows, pooling, 64),
        bag(2 * batch, 4, rows, pooling, 64),
        bag(batch, 4, rows, 2 * pooling, 64),
    )

    assert small <= min(larger, deeper)


@pytest.mark.parametrize("op", ["elementwise", "concat"])
def test_half_the_bytes_take_half_the_time(op: str) -> None:
    """A large stream in bf16 takes half as long as in fp32."""
    wide, narrow = seconds(
        over_rows(op, 1 << 16, 4096), over_rows(op, 1 << 16, 4096, dtype="bf16")
    )

    assert 2 == pytest.approx(wide / narrow, rel=0.02)


def test_a_large_gemm_runs_near_the_peak() -> None:
    """A large fp32 GEMM reaches 75 to 100 % of V100's peak."""
    kernel = gemm(8192, 8192, 8192)

    share = kernel.work.flops / V100.peak("fp32") / seconds(kernel)[0]

    assert 0.75 <= share <= 1


def test_tensor_cores_are_faster() -> None:
    """A large bf16 GEMM takes less than a quarter of the fp32 time on A100."""
    wide, narrow = seconds(
        gemm(4096, 4096, 4096),
        gemm(4096, 4096, 4096, dtype="bf16", math="bf16"),
        target="a100-sxm-80g",
    )

    assert narrow < wide / 4


def test_a_second_wave_costs() -> None:
    """One tile more than SMs costs far more than its flops."""
    one, two = seconds(gemm(128 * 80, 128, 4096), gemm(128 * 81, 128, 4096))

    assert two > 1.05 * one


def test_depth_is_split_where_tiles_are_few() -> None:
    """A deep GEMM with few outputs uses more than the SMs that its tiles fill."""
    kernel = gemm(128, 128, 65536)

    (found_s,) = seconds(kernel)

    assert found_s < kernel.work.flops / (V100.peak("fp32") * 4 / 80)


def test_a_small_board_clocks_down() -> None:
    """T4 with more power computes large fp32 GEMMs faster."""
    kernel = gemm(8192, 8192, 8192)
    hungry = load_target("t4", {"power.tdp_w": "300"})

    starved_s = price([kernel], load_target("t4"), ALL_MODELS).seconds[0]

    assert price([kernel], hungry, ALL_MODELS).seconds[0] < 0.7 * starved_s


def test_lookups_of_a_tiny_table_come_from_l2() -> None:
    """A table of a hundred rows costs less than one of a million."""
    tiny, huge = seconds(bag(4096, 8, 100, 50, 64), bag(4096, 8, 10**6, 50, 64))

    assert tiny < huge / 1.5


def test_several_tables_share_one_launch() -> None:
    """One kernel over eight tables beats eight kernels of few bags."""
    together, single = seconds(bag(64, 8, 10**6, 10, 64), bag(64, 1, 10**6, 10, 64))

    assert single <= together < 8 * single


def test_skewed_lookups_are_less_certain() -> None:
    """Popularity other than uniform widens the interval."""
    priced = price(
        [bag(64, 1, 1000, 2, 64), bag(64, 1, 1000, 2, 64, popularity="zipf(1.1)")],
        V100,
        ALL_MODELS,
    )

    assert priced.sigma_independent[0] < priced.sigma_independent[1]


def test_a_table_without_pooling_is_refused() -> None:
    """A table that does not say its pooling cannot be priced."""
    kernel = bag(64, 1, 1000, 2, 64)
    params = kernel.params.updated(tables=(Record({"rows": 10, "dim": 4}),))

    with pytest.raises(PerfcError, match="a record of 'tables' lacks pooling"):
        Kernel(kernel.op, kernel.dtype, "fp32", params, kernel.work)


def test_copies_take_latency_and_rate() -> None:
    """A pinned copy of 123 MB over 12.3 GB/s takes 10 ms and the latency."""
    assert [
        pytest.approx(10e-3 + V100.host_link.latency_s),
        pytest.approx(V100.host_link.latency_s, rel=1e-3),
    ] == seconds(copy(123_000_000), copy(1))


def test_pageable_copies_are_slower() -> None:
    """A pageable copy takes longer than a pinned one, in both directions."""
    pinned, pageable, back, pageable_back = seconds(
        copy(1 << 24),
        copy(1 << 24, pinned=False),
        copy(1 << 24, "d2h"),
        copy(1 << 24, "d2h", pinned=False),
    )

    assert (True, True) == (pageable > pinned, pageable_back > back)


def test_what_is_staged_at_once_waits_for_nobody() -> None:
    """A pageable copy of 256 KiB takes as long as a pinned one, each more longer."""
    pinned, pageable, more = seconds(
        copy(1 << 18), copy(1 << 18, pinned=False), copy((1 << 18) + 1, pinned=False)
    )

    assert pinned == pageable < more < 1.001 * pageable


def test_a_copy_on_the_device_does_not_cross_the_link() -> None:
    """A copy inside the device runs at the rate of its memory."""
    (found_s,) = seconds(copy(10**9, "d2d"))

    assert 2e9 / V100.device.memory.bytes_per_s == pytest.approx(found_s, rel=0.25)


def test_convolutions_are_not_at_the_roofline() -> None:
    """The 1x1 and 7x7 convolutions of ResNet-50 run below the peak."""
    kernels = [conv(64, 256, 56, kernel=1), conv(3, 64, 224, kernel=7)]

    bound_s = lower_bound(KernelTable(kernels), V100)
    over = [found / b for found, b in zip(seconds(*kernels), bound_s, strict=True)]

    assert min(over) > 1.02


def test_winograd_beats_the_direct_bound() -> None:
    """Fewer multiplications take less time than the direct algorithm's at the peak."""
    kernel = conv(256, 256, 56, kernel=3)

    (found_s,) = seconds(kernel)

    direct_s = kernel.work.flops / V100.peak("fp32")
    assert direct_s / 4 < found_s < direct_s


def test_the_named_algorithm_is_priced() -> None:
    """Many filters and few pixels are no case for Winograd, unless a launch says so."""
    kernel = conv(512, 512, 7, kernel=3, n=4)
    names = ("implicit", "fused_winograd", "winograd")
    named = [
        attrs.evolve(kernel, params=kernel.params.updated(algorithm=name))
        for name in names
    ]

    fastest, *each = seconds(kernel, *named)

    assert min(each) == fastest
    assert len(set(each)) == len(names)


def test_a_board_without_power_convolves_below_its_boost_clock() -> None:
    """T4 has 70 W for 8.1 TFLOP/s; P4's clock is low enough for its 75 W."""
    kernel = conv(512, 512, 28, kernel=3)
    times = [
        float(price([kernel], target, ALL_MODELS).seconds[0]) * target.peak("fp32")
        for target in (load_target("t4"), load_target("p4"), V100)
    ]

    assert times[0] > 1.1 * max(times[1:])


def test_every_model_says_who_and_how_sure() -> None:
    """Each row names its model, its provenance and its uncertainties."""
    kernels = [
        gemm(512, 512, 512),
        conv(64, 64, 56, kernel=3),
        over_rows("elementwise", 64, 64),
        over_rows("concat", 64, 64),
        bag(64, 1, 1000, 2, 64),
        copy(4096),
        unknown(4096),
    ]

    priced = price(kernels, V100, ALL_MODELS)

    assert [
        ("gemm", Provenance.FITTED),
        ("conv", Provenance.FITTED),
        ("streaming", Provenance.FITTED),
        ("streaming", Provenance.ANALYTIC),
        ("embedding-bag", Provenance.ANALYTIC),
        ("memcpy", Provenance.ANALYTIC),
        ("roofline", Provenance.ASSUMED),
    ] == list(zip(priced.model, priced.provenance, strict=True))
    assert 6 == int(priced.sigma_independent.argmax())
    assert min(priced.sigma_common) > 0
