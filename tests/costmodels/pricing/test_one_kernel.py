"""A kernel priced alone costs what it costs in a table."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.costmodels.signatures import (
    bag,
    conv,
    copy,
    declared,
    gemm,
    over_rows,
    unknown,
    update,
)

from perfc.costmodels import (
    Estimate,
    KernelTable,
    Target,
    cost_models,
    load_target,
    price,
)
from perfc.costmodels.machine import Family, KernelFit, fits_of
from perfc.costmodels.pricing import price_table
from perfc.costmodels.pricing.one_kernel import price_one
from perfc.costmodels.pricing.select import FEW
from perfc.costmodels.streaming import IDLE, REPEATED, STREAMING
from perfc.ir import AttrValue, Kernel, Record, Work

MODELS = cost_models()
MEASURED = ("p100", "p4", "v100", "t4", "a100", "a100-pcie-40g", "h100", "l40s")
TARGETS = [load_target(name) for name in (*MEASURED, "mi210", "rtx-4090")]
SIZES = st.one_of(st.just(1), st.integers(1, 300), st.integers(1, 70_000))


@st.composite
def gemms(draw: st.DrawFn) -> Kernel:
    """Return a GEMM of any size, type and layout, batched, beside another or not."""
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


def _said(estimate: Estimate) -> list[object]:
    """Return all that an estimate says of its only row."""
    numbers = (
        *(estimate.seconds, estimate.sigma_shared, estimate.sigma_independent),
        *estimate.sigma_target,
    )
    words = (estimate.model, estimate.provenance)
    return [*(float(each[0]) for each in numbers), *(each[0] for each in words)]


def _in_a_table(kernel: Kernel, target: Target) -> Estimate:
    """Return what a kernel costs in a table of too many to price them one by one."""
    found = price_table(KernelTable([kernel] * (FEW + 1)), target, MODELS)
    return found.take(np.array([0]))


@settings(deadline=None, max_examples=200)
@given(gemms(), st.sampled_from(TARGETS))
def test_alone_as_in_a_table(kernel: Kernel, target: Target) -> None:
    """Bit for bit, also where a network in single precision corrects the model."""
    alone = price_one(kernel, target, MODELS)

    if kernel.math not in target.device.flops_per_s:
        assert alone is None
        return
    table = _in_a_table(kernel, target)
    assert alone is not None
    assert _said(table) == _said(alone)


OPS = sorted(STREAMING.ops - {"memcpy"})
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
    """Bit for bit, of every op and all that its formula reads."""
    kernel = over_rows(op, rows, cols)
    params = declared(op, {**kernel.params, **flags})
    kernel = attrs.evolve(kernel, params=params)

    alone = price_one(kernel, target, MODELS)

    assert alone is not None
    table = _in_a_table(kernel, target)
    assert _said(table) == _said(alone)


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
    table = _in_a_table(kernel, target)
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
    table = _in_a_table(kernel, target)
    assert (table.seconds, table.model) == (alone.seconds, alone.model)
    assert table.sigma_shared == alone.sigma_shared


def attentions() -> st.SearchStrategy[Kernel]:
    """Return attention of any size and type, those that were measured among them."""
    few, width = st.integers(1, 70), st.sampled_from([40, 64, 72, 80, 128, 300])
    lengths = st.integers(1, 9000)
    equal = lengths.map(lambda length: (length, length))
    return st.builds(
        _attention,
        *(few, few, st.one_of(equal, st.tuples(lengths, lengths)), width),
        st.sampled_from(["fp32", "bf16", "fp16"]),
        st.sampled_from([{}, {"causal": True}, {"phase": "backward"}]),
    )


def _attention(
    batch: int,
    heads: int,
    lengths: tuple[int, int],
    head_dim: int,
    math: str,
    more: dict[str, AttrValue],
) -> Kernel:
    q_len, kv_len = lengths
    params: dict[str, AttrValue] = {
        "batch": batch,
        "heads": heads,
        "q_len": q_len,
        "kv_len": kv_len,
        "head_dim": head_dim,
        **more,
    }
    each = batch * heads * head_dim
    work = Work(4 * each * q_len * kv_len, 2 * each * (q_len + 2 * kv_len), 2 * each)
    return Kernel("attention", math, math, Record(params), work)


def convolutions() -> st.SearchStrategy[Kernel]:
    """Return convolutions by any algorithm, grouped or not, in any type."""
    channels = st.sampled_from([1, 3, 16, 32, 50, 64, 256, 512])
    more: list[dict[str, AttrValue]] = [
        {},
        {"stride": 2},
        {"kernel": (3, 3)},
        {"phase": "backward_data"},
        {"algorithm": "winograd"},
        {"algorithm": "fused_winograd"},
        {"algorithm": "implicit"},
        {"algorithm": "fft"},
        {"beside": 2, "beside_bytes": 1 << 16},
        {"groups": 2},
    ]
    return st.builds(
        _convolution,
        *(channels, channels, st.integers(7, 224), st.sampled_from([1, 3, 5])),
        st.integers(1, 128),
        st.sampled_from(["fp32", "tf32", "bf16"]),
        st.sampled_from(["conv2d", "conv3d"]),
        st.sampled_from(more),
    )


def _convolution(
    c_in: int,
    c_out: int,
    image: int,
    side: int,
    count: int,
    math: str,
    op: str,
    more: dict[str, AttrValue],
) -> Kernel:
    kernel = conv(c_in, c_out, image, kernel=side, n=count)
    params = kernel.params.updated(**more)
    return attrs.evolve(kernel, op=op, math=math, params=params)


@st.composite
def embedding_tables(draw: st.DrawFn) -> Record:
    """Return what a lookup says of one table."""
    return Record(
        {
            "rows": draw(st.integers(1, 1 << 24)),
            "dim": draw(st.integers(1, 512)),
            "pooling": draw(st.integers(1, 100)),
            "popularity": draw(st.sampled_from(["uniform", "uniform", "zipf"])),
        }
    )


@st.composite
def lookups(draw: st.DrawFn) -> Kernel:
    """Return a lookup in tables, or an update of their rows, alike or not."""
    batch = draw(st.integers(1, 1 << 14))
    if draw(st.booleans()):
        kernel = bag(batch, 1, 1, 1, 64, weighted=draw(st.booleans()))
    else:
        optimizer = draw(st.sampled_from(["sgd", "adagrad", "rowwise_adagrad", "adam"]))
        algorithm = draw(st.sampled_from(["", "atomic", "warp_per_row"]))
        kernel = update(*(batch, 1, 1, 1, 64), optimizer=optimizer, algorithm=algorithm)
    several = draw(st.lists(embedding_tables(), min_size=1, max_size=4))
    tables = draw(st.sampled_from([tuple(several), (several[0],) * len(several)]))
    return attrs.evolve(kernel, params=kernel.params.updated(tables=tables))


@st.composite
def others(draw: st.DrawFn) -> Kernel:
    """Return a kernel of a small model, of none, or of an op that nothing knows."""
    more: list[tuple[str, dict[str, AttrValue]]] = [
        ("batch_norm", {"kind": "training"}),
        ("batch_norm", {"kind": "training", "phase": "backward"}),
        ("ctc_walk", {"steps": 40}),
        ("embedding_backward", {"lookups": 3000}),
        ("linearize_indices", {"bags": 900_000}),
        ("index_add", {"indices": 300, "inner": 700, "outer": 4}),
        ("topk", {}),
        ("acme::magic", {}),
    ]
    op, params = draw(st.sampled_from(more))
    if op == "acme::magic":
        return unknown(draw(SIZES))
    kernel = over_rows(op, draw(SIZES), draw(SIZES))
    return attrs.evolve(kernel, params=kernel.params.updated(**params))


@settings(deadline=None, max_examples=400)
@given(
    st.one_of(attentions(), convolutions(), lookups(), others()),
    st.sampled_from(TARGETS),
)
def test_the_formula_of_one_is_that_of_many(kernel: Kernel, target: Target) -> None:
    """Bit for bit, of every model."""
    assume(kernel.math in target.device.flops_per_s)
    alone = price_one(kernel, target, MODELS)

    assert alone is not None
    table = _in_a_table(kernel, target)
    assert _said(table) == _said(alone)


_MANY = [
    *(
        gemm(m, n, k, dtype=dtype, math=dtype)
        for dtype in ("bf16", "fp16", "fp32")
        for m in (1, 7, 64, 300, 4096)
        for n, k in ((64, 64), (1000, 300), (4096, 1024))
    ),
    *(over_rows(op, rows, 300) for op in OPS for rows in (3, 4096)),
    *(conv(64, 64, image, kernel=3) for image in (7, 14, 56)),
    *(
        _attention(4, heads, (length, length), 64, "bf16", {})
        for heads in (1, 12)
        for length in (64, 512, 1000)
    ),
    *(bag(256, tables, 10_000, 5, 64) for tables in (1, 3, 26)),
    *(copy(nbytes) for nbytes in (4, 1 << 20, 10**8)),
]
"""Kernels of every model."""


def test_a_table_prices_what_has_no_other_way() -> None:
    """Kernels of a processor and of a calibrated GPU."""
    kernel, gpu, processor = gemm(64, 64, 64), load_target("v100"), load_target("cpu")
    fit = KernelFit(
        Family("gemm", "fp32"), {"start_us": 0.0, "scale": 2.0}, 0.02, 0.03, 10
    )
    mine = attrs.evolve(gpu, fits=fits_of((fit,)))

    for target in (processor, mine):
        assert price_one(kernel, target, MODELS) is None
        table = _in_a_table(kernel, target)
        assert table.seconds == price([kernel], target, MODELS).seconds


def test_a_table_prices_what_numbers_cannot_say() -> None:
    """Rows of no size at all: arrays divide by nought."""
    kernel, gpu = bag(8, 2, 100, 2, 0), load_target("v100")

    assert price_one(kernel, gpu, MODELS) is None
    with np.errstate(divide="ignore", invalid="ignore"):
        table = _in_a_table(kernel, gpu)
        assert table.seconds == price([kernel], gpu, MODELS).seconds


def test_what_is_worked_out_of_a_target_belongs_to_it() -> None:
    """A target with another clock has a price of its own."""
    usual, slow = load_target("v100"), load_target("v100", {"gpu.sm_clock_mhz": "700"})
    kernel = gemm(4096, 4096, 4096)
    prices = [price([kernel], target, MODELS).seconds[0] for target in (usual, slow)]
    again = attrs.evolve(usual, device=slow.device)

    assert prices[1] > 1.5 * prices[0]
    assert prices[1] == price([kernel], again, MODELS).seconds[0]


@pytest.mark.parametrize("name", ["a100", "h100", "l40s", "t4", "v100"])
def test_a_kernel_costs_the_same_in_any_company(name: str) -> None:
    """Bit for bit: alone, in tables of 2, 6 and 300, and in a shuffled one."""
    target, random = load_target(name), np.random.default_rng(0)
    some = [k for k in _MANY if k.math in target.device.flops_per_s]
    chosen = [some[i % len(some)] for i in range(300)]
    alone = np.array([price([kernel], target, MODELS).seconds[0] for kernel in chosen])

    for count in (2, 6, 300):
        together = price(chosen[:count], target, MODELS).seconds
        assert together.tolist() == alone[:count].tolist()
    order: list[int] = random.permutation(300).tolist()
    shuffled = price([chosen[i] for i in order], target, MODELS).seconds
    assert shuffled.tolist() == alone[order].tolist()
