"""What integers of 8 bits gain on a CPU: as measured, not by bytes."""

from __future__ import annotations

import pytest

from perfc.costmodels import cost_models, load_target, price
from perfc.ir import AttrValue, Kernel, Record, Work

_SHAPES = ((64, 800, 320), (64, 768, 512))
_RANGES = {32: (1.1, 1.6), 16: (1.5, 2.9)}
"""Measured gains over fp32 with 64 rows, by the bits of sums (FBGEMM)."""

_TARGETS = ("cpu", "2s-skylake", "2s-icelake", "1s-server")


def gemm(m: int, n: int, k: int, dtype: str, bits: int = 32) -> Kernel:
    """Return a GEMM."""
    item = 4 if dtype == "fp32" else 1
    params: dict[str, AttrValue] = {"m": m, "n": n, "k": k, "layout": "nn"}
    if bits != 32:
        params["sum_bits"] = bits
    work = Work(2 * m * n * k, (m * k + k * n) * item, 4 * m * n)
    mode = "fp32" if dtype == "fp32" else "int8"
    return Kernel("gemm", dtype, mode, Record(params), work)


def gain(shape: tuple[int, int, int], target: str, bits: int) -> float:
    """Return how many times faster integers are."""
    kernels = [gemm(*shape, "fp32"), gemm(*shape, "int8", bits)]
    wide_s, narrow_s = price(kernels, load_target(target), cost_models()).seconds
    return float(wide_s / narrow_s)


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("bits", _RANGES)
@pytest.mark.parametrize("shape", _SHAPES)
def test_measured_gains(shape: tuple[int, int, int], bits: int, target: str) -> None:
    """Both shapes lie in what was measured of them."""
    least, most = _RANGES[bits]

    assert least <= gain(shape, target, bits) <= most


@pytest.mark.parametrize("bits", _RANGES)
def test_fewer_rows_gain_more(bits: int) -> None:
    """Up to the ratio of bytes, which reading the right operand has."""
    gains = [gain((m, 1024, 1024), "2s-skylake", bits) for m in (256, 64, 16, 4, 2)]

    assert sorted(gains) == gains
    assert gains[-1] < 4
