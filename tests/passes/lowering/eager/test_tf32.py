"""TF32 is a permission: where it computes no faster, nothing changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowered import kernels, lower

import perfc
from perfc.costmodels import (
    Target,
    cost_models,
    load_target,
    price,
)
from perfc.costmodels.sheets import target_names
from perfc.ir import Kernel, Record, Work
from perfc.passes import LowerKernels

NAMES = ("inception-v3", "resnet50", "bert-base:layers=1")


@pytest.mark.parametrize("name", NAMES)
def test_where_tf32_is_no_faster_kernels_stay_as_they_are(name: str) -> None:
    """On GeForce tensor cores that sum in fp32 have the rate of all other cores."""
    model, gpu = perfc.load(name, batch=32), load_target("rtx-4090")
    rates = gpu.device.flops_per_s

    assert rates["tf32"] <= rates["fp32"]
    allowed = perfc.analyze(model, gpu, dtype="tf32")
    assert perfc.analyze(model, gpu).time_us == allowed.time_us


def test_a_slow_rate_by_hand_changes_no_choice_of_kernels() -> None:
    """Which kernels run is as of the known GPU: a better rate is never slower."""
    model = perfc.load("resnet50", batch=64)
    times_us = [
        perfc.analyze(
            model,
            load_target("a100", {"gpu.rates_tflops.tf32": rate}),
            dtype="tf32",
        ).time_us
        for rate in ("10", "40", "156", "600")
    ]

    assert times_us == sorted(times_us, reverse=True)


BOARDS = [
    target
    for target in map(load_target, target_names())
    if "tf32" in target.device.flops_per_s
]
SIZES = st.one_of(
    st.integers(1, 4096), st.sampled_from((1, 2, 13, 64, 128, 1000, 1024, 8192))
)
SURELY = 1 + 1e-9


@settings(max_examples=200)
@given(st.sampled_from(BOARDS), st.tuples(SIZES, SIZES, SIZES), st.data())
def test_no_gemm_is_slower_in_tf32(
    board: Target, sizes: tuple[int, int, int], data: st.DataObject
) -> None:
    """A library that may use TF32 may also use what it has without."""
    (m, n, k), b = sizes, data.draw(st.sampled_from((1, 1, 8, 512)))
    layout = data.draw(st.sampled_from(("nn", "nt", "tn")))
    params = Record({"b": b, "m": m, "n": n, "k": k, "layout": layout})
    work = Work(2 * b * m * n * k, 4 * b * (m * k + k * n), 4 * b * m * n)
    plain, tf32 = (
        Kernel("gemm", "fp32", mode, params, work)
        for mode in (board.device.fp32_gemms, "tf32")
    )
    alone = [price([kernel], board, cost_models()) for kernel in (plain, tf32)]
    many = [plain, tf32] * 40  # too many to be priced one by one
    together = price(many, board, cost_models()).seconds.tolist()

    assert alone[1].seconds[0] <= alone[0].seconds[0] * SURELY
    assert together[1] <= together[0] * SURELY
    assert together[:2] == pytest.approx([one.seconds[0] for one in alone])


@settings(max_examples=60)
@given(st.sampled_from(BOARDS), st.integers(1, 64), st.data())
def test_no_convolution_is_slower_in_tf32(
    board: Target, images: int, data: st.DataObject
) -> None:
    """With the kernels beside it; or the host launches fewer of them."""
    size, channels, maps = (
        data.draw(st.sampled_from(known))
        for known in ((1, 7, 14, 56), (3, 8, 64, 256), (8, 16, 64, 512))
    )
    window, stride = (
        data.draw(st.sampled_from(known)) for known in ((1, 3, 7), (1, 2))
    )
    text = (
        f"graph @g(%x: f32[{images},{channels},{size},{size}], "
        f"param %w: f32[{maps},{channels},{window},{window}]) {{ %y = conv(%x, %w) "
        f"{{padding = {[window // 2] * 4}, stride = {[stride] * 2}}} : ?\n return %y }}"
    )
    plain, tf32 = (
        kernels(lower(text, LowerKernels("device", on, cudnn_tf32=on), board.name))
        for on in (False, True)
    )
    plain_s, tf32_s = (
        price(launched, board, cost_models()).seconds.sum()
        for launched in (plain, tf32)
    )

    assert tf32_s <= plain_s * SURELY or len(tf32) < len(plain)
