"""What perfc's own rows of an H100 say of kernels that no other GPU's rows have."""

from __future__ import annotations

import pytest
from tests.costmodels.signatures import ALL_MODELS, bag
from tests.measurements.rows import measured

from perfc.costmodels import load_target, price
from perfc.ir import AttrValue, Kernel
from perfc.measurements import kernel_of

H100, A100 = load_target("h100"), load_target("a100")


def _seconds(
    op: str, dtype: str, target: str = "h100", /, **params: AttrValue
) -> float:
    return _priced(kernel_of(measured(op, dtype, **params)), target)


def _priced(kernel: Kernel, target: str) -> float:
    return float(price([kernel], load_target(target), ALL_MODELS).seconds[0])


@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
def test_lines_that_are_not_aligned_have_slower_kernels(dtype: str) -> None:
    """One column more than 17,496 takes more than twice as long, on A100 of 16 bits."""
    sizes: dict[str, AttrValue] = {"b": 1, "m": 2024, "k": 3936, "layout": "nt"}
    even, odd = (_seconds("gemm", dtype, n=n, **sizes) for n in (17496, 17497))
    older = [_seconds("gemm", dtype, "a100", n=n, **sizes) for n in (17496, 17497)]

    assert odd > 2 * even
    even_lines = _seconds("gemm", dtype, "a100", n=17498, **sizes)
    slower = older[1] / older[0]

    assert pytest.approx(older[0], rel=0.1) == even_lines
    assert slower > 2 if dtype == "bf16" else pytest.approx(1, rel=0.1) == slower


def test_a_kernel_that_adds_a_bias_hardly_cuts_its_sums() -> None:
    """A deep sum of few results then runs on few SMs."""
    sizes: dict[str, AttrValue] = {"b": 1, "m": 128, "n": 64, "k": 24576}
    plain = _seconds("gemm", "fp32", layout="nt", bias=False, **sizes)

    assert _seconds("gemm", "fp32", layout="nt", bias=True, **sizes) > 2 * plain


def test_few_rows_are_gathered_one_after_the_other() -> None:
    """Sixteen take longer than seventeen, which have a block each."""
    sizes: dict[str, AttrValue] = {"kind": "gather", "axis": 0}
    few, more = (
        _seconds("gather", "fp32", shape=(65536, 64), indices=(count,), **sizes)
        for count in (16, 17)
    )

    assert few > 2 * more


def test_a_few_bytes_come_with_the_command_that_copies_them() -> None:
    """To the device; what comes back, and what is large, waits for the bus."""
    sizes: dict[str, AttrValue] = {"bytes": 64, "pinned": True}
    there, back = (_seconds("memcpy", "fp32", kind=k, **sizes) for k in ("h2d", "d2h"))

    assert there < back < H100.host_link.latency_s
    assert A100.host_link.latency_s < _seconds(
        "memcpy", "fp32", "a100", kind="h2d", **sizes
    )


def test_a_bag_waits_for_one_row_after_the_other() -> None:
    """Twice the lookups of a bag take almost twice as long, whatever memory gives."""
    once, twice = (_priced(bag(1, 1, 10, n, 32), "h100") for n in (100, 200))

    assert twice > 1.6 * once
