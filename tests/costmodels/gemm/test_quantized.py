"""GEMMs of 8 bits whose left operand comes in 16: two kernels, in rows and graphs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfc.costmodels import KernelTable, cost_models, load_target, price
from perfc.costmodels.gemm import GEMM, QUANTISED
from perfc.costmodels.gemm.gemm import GemmModel
from perfc.costmodels.kernels import OneSignature
from perfc.costmodels.streaming import SCALED_BLOCK, STREAMING, StreamingModel
from perfc.ir import AttrValue, Kernel, Record, Work

SCALES = tuple(QUANTISED.items())
MODELS: Mapping[str, GemmModel | StreamingModel] = {
    "gemm": GEMM,
    "quantize": STREAMING,
}


def call(m: int, n: int, k: int, dtype: str, *, quantized: bool = False) -> Kernel:
    """Return the GEMM of a call; *quantized*: without the kernel in front of it."""
    read = (1 if quantized else 2) * m * k + k * n
    params: dict[str, AttrValue] = {"m": m, "n": n, "k": k, "quantized": quantized}
    work = Work(2 * m * n * k, read, 2 * m * n)
    return Kernel("gemm", dtype, "fp8", Record(params), work)


def quantize(rows: int, cols: int, scales: str) -> Kernel:
    """Return the kernel that finds the scales of a matrix of bf16."""
    blocks = -(-cols // SCALED_BLOCK) if scales == "blocks" else 1
    work = Work(5 * rows * cols, 2 * rows * cols, rows * cols + 4 * rows * blocks)
    params: dict[str, AttrValue] = {"rows": rows, "cols": cols, "scales": scales}
    return Kernel("quantize", "bf16", "fp32", Record(params), work)


def seconds(kernel: Kernel, target: str) -> float:
    """Return what a kernel takes on a GPU."""
    found = price([kernel], load_target(target), cost_models())
    return float(found.seconds[0])


@pytest.mark.parametrize("target", ["l40s", "h100", "b200", "rtx-pro-6000"])
@pytest.mark.parametrize(("dtype", "scales"), SCALES)
def test_a_call_is_the_sum_of_its_kernels(target: str, dtype: str, scales: str) -> None:
    """Also where a network corrects the call: its GEMM is what is left."""
    m, n, k = 4096, 4096, 2048
    parts_s = seconds(quantize(m, k, scales), target)
    parts_s += seconds(call(m, n, k, dtype, quantized=True), target)

    assert pytest.approx(parts_s) == seconds(call(m, n, k, dtype), target)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(SCALES),
    st.tuples(*[st.integers(1, 600).map(lambda size: 16 * size)] * 3),
    st.booleans(),
    st.sampled_from(["l40s", "h100", "rtx-pro-6000"]),
)
def test_one_costs_what_it_costs_in_a_table(
    kind: tuple[str, str], size: tuple[int, int, int], quantized: bool, target: str
) -> None:
    """A kernel alone is priced by the same formulas."""
    dtype, scales = kind
    m, n, k = size
    for kernel in (call(m, n, k, dtype, quantized=quantized), quantize(m, k, scales)):
        model, gpu = MODELS[kernel.op], load_target(target)
        alone = model.estimate_one(OneSignature(kernel), gpu)

        assert alone is not None
        together_s = model.estimate(KernelTable([kernel]), gpu).seconds
        assert pytest.approx(alone.seconds, rel=1e-6) == together_s[0]


@pytest.mark.parametrize("target", ["l40s", "h100"])
def test_scales_of_rows_cost_a_block_a_row(target: str) -> None:
    """Eight times as long rows take little longer; blocks go by bytes."""
    short_s = seconds(quantize(32768, 64, "rows"), target)

    assert short_s < seconds(quantize(32768, 512, "rows"), target) < 1.5 * short_s
    assert seconds(quantize(32768, 64, "blocks"), target) < 0.5 * short_s


def test_large_ones_reach_less_of_the_peak_than_bf16() -> None:
    """Twice the rate does not halve the time of a large GEMM."""
    size = 8192
    work = Work(2 * size**3, 4 * size * size, 2 * size * size)
    params = Record({"m": size, "n": size, "k": size})
    for target in ("l40s", "h100"):
        wide = seconds(Kernel("gemm", "bf16", "bf16", params, work), target)
        narrow = seconds(Kernel("gemm", "fp8", "fp8", params, work), target)

        assert 0.5 * wide < narrow < wide
