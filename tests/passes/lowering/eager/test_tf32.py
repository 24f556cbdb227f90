"""TF32 is a permission: where it computes no faster, nothing changes."""

from __future__ import annotations

import pytest

import perfc
from perfc.costmodels import load_target

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
