"""A kernel priced alone costs what it costs in a table."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.costmodels.kernels import bag, copy, gemm, over_rows

from perfc.costmodels import (
    IDLE,
    REPEATED,
    STREAMING,
    Family,
    KernelFit,
    KernelTable,
    Target,
    cost_models,
    fits_of,
    has_network,
    load_target,
    price,
    price_table,
)
from perfc.costmodels.single import price_one
from perfc.ir import AttrValue, Kernel

MODELS = cost_models()
MEASURED = ("p100", "p4", "v100", "t4", "a100", "a100-pcie-40g", "h100", "l40s")
TARGETS = [load_target(name) for name in (*MEASURED, "mi210", "rtx-4090")]
SIZES = st.one_of(st.just(1), st.integers(1, 300), st.integers(1, 70_000))


@st.composite
def products(draw: st.DrawFn) -> Kernel:
    """Return a product of any size, type and layout, batched, beside another or not."""
    m, n, k = (draw(SIZES) for _ in "mnk")
    math = draw(st.sampled_from(["fp32", "tf32", "bf16", "fp16"]))
    kernel = gemm(
        *(m, n, k),
        b=draw(st.one_of(st.just(1), st.integers(2, 600))),
        dtype="fp32" if math == "tf32" else math,
        math=math,
        layout=draw(st.sampled_from(["nn", "nt", "tn"])),
    )
    beside = draw(st.sampled_from([{}, {"beside": 1, "beside_bytes": 1 << 20}]))
    return attrs.evolve(kernel, params=kernel.params.updated(**beside))


@settings(deadline=None, max_examples=200)
@given(products(), st.sampled_from(TARGETS))
def test_alone_as_in_a_table(kernel: Kernel, target: Target) -> None:
    """To 1e-9; to 1e-6 where a network in single precision corrects the model."""
    alone = price_one(kernel, target, MODELS)

    if kernel.math not in target.device.flops_per_s:
        assert alone is None
        return
    table = price_table(KernelTable([kernel]), target, MODELS)
    assert alone is not None
    within = 1e-6 if has_network(target, kernel.math) else 1e-9
    assert pytest.approx(table.seconds[0], rel=within) == alone.seconds[0]
    for sigma in ("sigma_shared", "sigma_independent"):
        in_table, by_itself = getattr(table, sigma)[0], getattr(alone, sigma)[0]
        assert pytest.approx(in_table, rel=within) == by_itself
    assert (table.model, table.provenance) == (alone.model, alone.provenance)


OPS = sorted(STREAMING.ops - {"memcpy", "batch_norm"})
FLAGS: st.SearchStrategy[dict[str, AttrValue]] = st.sampled_from(
    [
        {},
        {"scattered": True},
        {"axis": 0},
        {"kind": "training"},
        {"phase": "backward"},
        {"passes": 1},
        {REPEATED: True},
        {REPEATED: True, IDLE: True},
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(OPS), SIZES, SIZES, FLAGS, st.sampled_from(TARGETS))
def test_a_stream_alone_as_in_a_table(
    op: str, rows: int, cols: int, flags: dict[str, AttrValue], target: Target
) -> None:
    """To 1e-12, of every op and all that its formula looks at."""
    kernel = over_rows(op, rows, cols)
    kernel = attrs.evolve(kernel, params=kernel.params.updated(**flags))

    alone = price_one(kernel, target, MODELS)

    assert alone is not None
    table = price_table(KernelTable([kernel]), target, MODELS)
    assert pytest.approx(table.seconds[0], rel=1e-12) == alone.seconds[0]
    assert table.sigma_shared[0] == alone.sigma_shared[0]
    assert table.sigma_independent[0] == alone.sigma_independent[0]
    assert (table.model, table.provenance) == (alone.model, alone.provenance)


@settings(deadline=None)
@given(
    st.builds(
        copy,
        st.integers(1, 1 << 32),
        st.sampled_from(["h2d", "d2h", "d2d"]),
        pinned=st.booleans(),
    ),
    st.sampled_from([{}, {"host_link.h2d_gb_per_s": "400"}]),
)
def test_a_copy_alone_as_in_a_table(kernel: Kernel, changed: dict[str, str]) -> None:
    """Bit for bit, at the bus's rate where a user asks for more than it has."""
    target = load_target("v100", changed)

    alone = price_one(kernel, target, MODELS)

    assert alone is not None
    table = price_table(KernelTable([kernel]), target, MODELS)
    assert (table.seconds, table.model) == (alone.seconds, alone.model)
    assert table.sigma_independent == alone.sigma_independent


@given(st.sampled_from(TARGETS), SIZES, SIZES)
def test_a_list_of_tensors_alone_as_in_a_table(
    target: Target, elements: int, chunk: int
) -> None:
    """Bit for bit."""
    kernel = over_rows("foreach", elements, 1)
    sizes = {"elements": elements, "largest_chunk": min(chunk, elements)}
    kernel = attrs.evolve(kernel, params=kernel.params.updated(**sizes))

    alone = price_one(kernel, target, MODELS)

    assert alone is not None
    table = price_table(KernelTable([kernel]), target, MODELS)
    assert (table.seconds, table.model) == (alone.seconds, alone.model)
    assert table.sigma_shared == alone.sigma_shared


@pytest.mark.parametrize("kernel", [gemm(64, 64, 64), bag(8, 2, 100, 2, 16)])
def test_a_table_prices_what_has_no_other_way(kernel: Kernel) -> None:
    """Kernels of a processor, of a calibrated GPU, and those no model does alone."""
    gpu, processor = load_target("v100"), load_target("cpu")
    fit = KernelFit(Family("gemm", "fp32"), {"scale": 2.0}, 0.02, 0.03, 10)
    mine = attrs.evolve(gpu, fits=fits_of((fit,)))
    targets = [processor, mine] if kernel.op == "gemm" else [gpu]

    assert [None] * len(targets) == [price_one(kernel, t, MODELS) for t in targets]
    for target in targets:
        table = price_table(KernelTable([kernel]), target, MODELS)
        assert table.seconds == price([kernel], target, MODELS).seconds


def test_what_is_worked_out_of_a_target_belongs_to_it() -> None:
    """A target with another clock has a price of its own."""
    usual, slow = load_target("v100"), load_target("v100", {"gpu.sm_clock_mhz": "700"})
    kernel = gemm(4096, 4096, 4096)
    prices = [price([kernel], target, MODELS).seconds[0] for target in (usual, slow)]
    again = attrs.evolve(usual, device=slow.device)

    assert prices[1] > 1.5 * prices[0]
    assert prices[1] == price([kernel], again, MODELS).seconds[0]
