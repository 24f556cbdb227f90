"""Prices of the kernels of training."""

from __future__ import annotations

import attrs
import pytest
from tests.passes.lowered import kernels, lower, one_op

from perfc.costmodels import (
    Provenance,
    Target,
    cost_models,
    load_target,
    lower_bound,
    price,
)
from perfc.costmodels.kernels import KernelTable
from perfc.ir import AttrValue, Kernel, Record, Work

V100 = load_target("v100")
A100 = load_target("a100")
CHUNK = 65536


def _us(found: list[Kernel], target: Target = V100) -> float:
    return float(price(found, target, cost_models()).seconds.sum()) * 1e6


def _lists(elements: int, chunks: int, passes: int) -> Kernel:
    params: dict[str, AttrValue] = {
        "kind": "add",
        "chunks": chunks,
        "largest_chunk": min(elements, CHUNK),
        "elements": elements,
    }
    work = Work(elements, (passes - 1) * elements * 4, elements * 4)
    return Kernel("foreach", "fp32", "fp32", Record(params), work)


def _gemm(op: str, params: dict[str, AttrValue], flops: int) -> Kernel:
    return Kernel(op, "fp32", "fp32", Record(params), Work(flops, 4, 4))


@pytest.mark.parametrize(
    ("target", "chunks", "elements", "passes", "measured_us"),
    [
        (V100, 8, 410_600, 2, 21.7),
        (V100, 71, 1_230_400, 3, 32.4),
        (V100, 155, 7_311_872, 3, 114.3),
        (V100, 282, 17_014_760, 3, 257.7),
        (A100, 8, 410_600, 2, 22.9),
        (A100, 71, 1_230_400, 3, 28.4),
    ],
)
def test_chunks_of_resnet50(
    target: Target, chunks: int, elements: int, passes: int, measured_us: float
) -> None:
    """`_foreach_mul_` and `_foreach_add_` in traces: few chunks are bound by one."""
    assert measured_us == pytest.approx(
        _us([_lists(elements, chunks, passes)], target), rel=0.2
    )


def test_steps_of_a_convolution_add_up_to_the_call() -> None:
    """What is launched beside a GEMM of SIMT is taken off it: rows are of calls."""
    text = """graph @g(%x: f32[32,128,28,28], param %w: f32[128,128,3,3]) {
      %y = conv(%x, %w) {padding = [1, 1, 1, 1]} : ?
      return %y }"""
    parts = kernels(lower(text, target="v100"))
    (main,) = (part for part in parts if part.op == "conv2d")
    whole = _without_beside(main)

    assert 4 == len(parts)
    assert _us([whole]) == pytest.approx(_us(parts), rel=0.05)


def _without_beside(main: Kernel) -> Kernel:
    beside = ("algorithm", "beside", "beside_bytes")
    params = {name: v for name, v in main.params.items() if name not in beside}
    return attrs.evolve(main, params=Record(params))


def test_split_gemm_adds_up_to_the_call() -> None:
    """The kernel that joins the parts is taken off the GEMM."""
    text = one_op("%a: f32[32,2048], %b: f32[2048,1000]", "matmul(%a, %b)")
    gemm, join = kernels(lower(text, target="v100"))
    whole = _without_beside(gemm)

    assert _us([gemm]) < _us([whole])
    assert _us([whole]) == pytest.approx(_us([gemm, join]), rel=0.1)


def test_winograd_may_beat_the_multiplications() -> None:
    """The bound of a convolution is that of its own algorithm, where one is named."""
    params: dict[str, AttrValue] = {"n": 32, "c_in": 128, "c_out": 128, "kernel": 3}
    flops = 2 * 32 * 128 * 128 * 9 * 28 * 28
    names = ("implicit", "fused_winograd", "winograd")
    kernels = [
        *(_gemm("conv2d", {**params, "algorithm": n}, flops) for n in names),
        _gemm("conv2d", params, flops),
        _gemm("conv2d", {**params, "stride": 2}, flops),
    ]
    bounds = lower_bound(KernelTable(kernels), V100)

    assert [1.0, 2.25, 4.0, 4.0, 1.0] == pytest.approx(list(bounds[0] / bounds))


def test_gradients_of_attention_are_analytic() -> None:
    """Five GEMMs where forward has two, at a rate that a paper gives."""
    names = ("batch", "heads", "q_len", "kv_len", "head_dim")
    sizes = Record(dict(zip(names, (8, 16, 2048, 2048, 64), strict=True)))
    forward = Kernel("attention", "bf16", "bf16", sizes, Work(4, 4, 4))
    backward = attrs.evolve(forward, params=sizes.updated(phase="backward"))
    h100 = load_target("h100")
    found = price([forward, backward], h100, cost_models())

    assert [Provenance.FITTED, Provenance.ANALYTIC] == list(found.provenance)
    assert 2.5 / 0.86 == pytest.approx(found.seconds[1] / found.seconds[0], rel=0.05)


def test_gradients_of_a_convolution_are_analytic() -> None:
    """They are priced by the forward GEMM: one factor is all that a trace told."""
    params: dict[str, AttrValue] = {"n": 32, "c_in": 64, "c_out": 256, "kernel": 1}
    flops = 2 * 32 * 64 * 256 * 56 * 56
    forward = _gemm("conv2d", params, flops)
    data = _gemm("conv2d", {**params, "phase": "backward_data"}, flops)
    found = price([forward, data], V100, cost_models())

    assert [Provenance.FITTED, Provenance.ANALYTIC] == list(found.provenance)
    assert 1.18 == pytest.approx(found.seconds[1] / found.seconds[0], rel=0.01)
    assert found.sigma_shared[0] < found.sigma_shared[1]


def test_channels_that_fill_the_tiles_of_winograd() -> None:
    """They are faster for their work than those next to them."""
    sizes: list[dict[str, AttrValue]] = [
        {"n": 32, "c_in": channels, "c_out": channels, "kernel": 3, "size": 14}
        for channels in (256, 255)
    ]
    flops = [2 * 9 * 32 * 14 * 14 * channels**2 for channels in (256, 255)]
    found = [_us([_gemm("conv2d", *each)]) for each in zip(sizes, flops, strict=True)]

    assert 0.8 == pytest.approx(found[0] / found[1], rel=0.03)


@pytest.mark.parametrize(
    ("channels", "side", "forward_us", "backward_us"),
    [
        (64, 112, 458.5, 952.2),
        (64, 56, 114.0, 245.5),
        (128, 28, 53.4, 102.0),
        (256, 56, 420.8, 792.3),
        (256, 14, 24.8, 51.4),
        (512, 28, 215.5, 379.8),
        (1024, 14, 89.5, 193.5),
        (512, 14, 48.5, 101.0),
    ],
)
def test_batch_norms_of_resnet50(
    channels: int, side: int, forward_us: float, backward_us: float
) -> None:
    """In a trace that no batch norm was fitted to (PyTorch 2.3, HTA)."""
    rows = 32 * side * side
    size = 4 * rows * channels
    params: dict[str, AttrValue] = {"rows": rows, "cols": channels, "kind": "training"}
    forward = Kernel(
        "batch_norm", "fp32", "fp32", Record(params), Work(size, size, size)
    )
    backward = attrs.evolve(
        forward,
        params=forward.params.updated(phase="backward"),
        work=Work(size, 2 * size, size),
    )

    assert forward_us == pytest.approx(_us([forward]), rel=0.08)
    assert backward_us == pytest.approx(_us([backward]), rel=0.12)


def test_given_statistics_are_no_batch_norm_of_cudnn() -> None:
    """Such a kernel reads each number once, whatever the channels; so on a CPU."""
    params: dict[str, AttrValue] = {"rows": 1 << 20, "cols": 64}
    size = 4 * 64 << 20
    given = Kernel("batch_norm", "fp32", "fp32", Record(params), Work(1, size, size))
    trained = attrs.evolve(given, params=given.params.updated(kind="training"))
    found = price([given, trained], V100, cost_models())
    on_cpu = price([trained], load_target("cpu"), cost_models())

    assert ["streaming", "batch-norm"] == list(found.model)
    assert ["cpu"] == list(on_cpu.model)
    assert found.seconds[1] > 1.5 * found.seconds[0]
