"""Measured rows as kernels: their sizes, their compulsory work, and what is unknown."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from tests.costmodels import signatures
from tests.measurements.rows import PARAMS, measured

from perfc.ir import AttrValue, Kernel, PerfcError, Record, Work
from perfc.measurements import (
    KERNEL_OPS,
    Measurement,
    MeasurementError,
    bytes_of,
    kernel_of,
    kernel_tables,
)

TABLE = Record({"rows": 1000, "dim": 64, "pooling": 20})


@pytest.mark.parametrize(
    ("row", "work"),
    [
        (measured("gemm", b=2, m=3, n=5, k=7), Work(420, 448, 120)),
        (measured("gemm", b=1, m=3, n=5, k=7, bias=True), Work(210, 244, 60)),
        (measured("gemm", "bf16", b=1, m=3, n=5, k=7), Work(210, 112, 30)),
        (measured("gemm", "fp8", b=1, m=16, n=16, k=16), Work(8192, 512, 512)),
        (measured("gemm", "w4a16", b=1, m=1, n=8, k=8), Work(128, 48, 16)),
        (
            measured("elementwise", kind="add", rows=4, cols=5, tensor_inputs=2),
            Work(20, 160, 80),
        ),
        (
            measured("elementwise", "bf16", kind="q", rows=1, cols=32, bytes=96),
            Work(32, 64, 32),
        ),
        (measured("softmax", rows=4, cols=5), Work(100, 80, 80)),
        (measured("softmax", rows=4, cols=5, phase="backward"), Work(200, 160, 80)),
        (measured("reduction", rows=4, cols=5, kind="sum"), Work(20, 80, 16)),
        (measured("memcpy", bytes=100, kind="h2d"), Work(0, 100, 100)),
        (
            measured("gather", kind="gather", shape=(9, 8), indices=(3,)),
            Work(0, 120, 96),
        ),
        (measured("concat", axis=0, shapes=((2, 3), (4, 3))), Work(0, 72, 72)),
        (measured("transpose", shape=(2, 3), perm=(1, 0)), Work(0, 24, 24)),
        (
            measured("optimizer_step", kind="adam", elements=10),
            Work(140, 160, 120),
        ),
    ],
)
def test_work(row: Measurement, work: Work) -> None:
    """Every operand is read once and every result written once."""
    assert work == kernel_of(row).work


def test_each_phase_of_a_convolution_writes_another_tensor() -> None:
    """The flops stay; of image, filters and result two are read, one is written."""
    sizes: dict[str, AttrValue] = {"n": 2, "c_in": 3, "c_out": 4, "kernel": 3}
    sizes |= {"size": 8, "stride": 1, "padding": 1}
    image, filters, result = 4 * 2 * 3 * 64, 4 * 4 * 3 * 9, 4 * 2 * 4 * 64
    found = {
        phase: kernel_of(measured("conv2d", **sizes, phase=phase)).work
        for phase in ("forward", "backward_data", "backward_weight")
    }

    assert {
        "forward": result,
        "backward_data": image,
        "backward_weight": filters,
    } == {phase: work.bytes_written for phase, work in found.items()}
    assert {image + filters + result} == {work.bytes for work in found.values()}
    assert {2 * 2 * 64 * 27 * 4} == {work.flops for work in found.values()}


@pytest.mark.parametrize(
    ("row", "kernel"),
    [
        (
            measured("gemm", b=2, m=3, n=5, k=7, layout="nn"),
            signatures.gemm(3, 5, 7, b=2),
        ),
        (
            measured("gemm", "tf32", b=1, m=3, n=5, k=7, layout="nt"),
            signatures.gemm(3, 5, 7, math="tf32", layout="nt"),
        ),
        (
            measured("elementwise", rows=4, cols=8, kind="add", tensor_inputs=2),
            signatures.over_rows("elementwise", 4, 8, inputs=2),
        ),
        (
            measured("embedding_bag", batch=8, tables=(TABLE, TABLE)),
            signatures.bag(8, 2, 1000, 20, 64),
        ),
        (
            measured("memcpy", bytes=64, kind="h2d", pinned=True),
            signatures.copy(64),
        ),
    ],
)
def test_signature(row: Measurement, kernel: Kernel) -> None:
    """A row is the kernel that the cost models are asked for."""
    assert kernel == kernel_of(row)


def test_an_update_moves_the_rows_that_are_touched() -> None:
    """Rows and states are read and written once, however often they are looked up."""
    many = Record({"rows": 10, "dim": 4, "pooling": 100_000})
    sgd, adagrad, rowwise = (
        kernel_of(
            measured(
                "embedding_bag",
                batch=1,
                tables=(many,),
                phase="backward",
                optimizer=optimizer,
            )
        ).work.bytes_written
        for optimizer in ("sgd", "adagrad", "rowwise_adagrad")
    )

    assert (10 * 16, 10 * 32, 10 * 20) == (sgd, adagrad, rowwise)


def test_math_modes() -> None:
    """GEMMs compute as their dtype says, everything else in fp32."""
    gemm = {"b": 1, "m": 16, "n": 16, "k": 16}
    found = {
        dtype: kernel_of(measured("gemm", dtype, **gemm)).math
        for dtype in ("bf16", "tf32", "fp8_block", "w8a16", "fp64")
    }
    softmax = kernel_of(measured("softmax", "bf16", rows=2, cols=2))

    assert {
        "bf16": "bf16",
        "tf32": "tf32",
        "fp8_block": "fp8",
        "w8a16": "bf16",
        "fp64": "fp64",
    } == found
    assert ("bf16", "fp32") == (softmax.dtype, softmax.math)


_IMAGE = {"n": 1, "c_in": 4, "c_out": 8, "size": 4, "stride": 1, "padding": 1}
_HEADS = {
    "batch": 1,
    "heads": 8,
    "q_len": 16,
    "kv_len": 16,
    "head_dim": 64,
    "causal": False,
}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (measured("all_shrink", bytes=8), "unknown op 'all_shrink'; known: gemm, con"),
        (measured("gemm", "fp3", m=1), "unknown dtype 'fp3'; known: fp64, fp32"),
        (measured("gemm", m=1), "kernel 'gemm' lacks n, k; expected n, a whole number"),
        (measured("softmax", rows="4", cols=1), 'rows is "4", expected a whole number'),
        (measured("conv2d", n=1, phase="sideways"), "conv2d"),
        (
            measured("conv2d", **_IMAGE, kernel=7, groups=1),
            "kernel is 7: the window is larger than the padded image",
        ),
        (
            measured("conv2d", **_IMAGE, kernel=1, groups=3),
            "groups is 3, c_in is 4, c_out is 8: groups do not share the channels",
        ),
        (
            measured("conv2d", **_IMAGE, kernel=1, groups=0),
            "groups is 0, c_in is 4, c_out is 8: groups do not share the channels",
        ),
        (
            measured("attention", **_HEADS, kv_heads=3),
            "kv_heads is 3, heads is 8: heads are no multiple of kv_heads",
        ),
        (measured("memcpy", bytes=8, kind="h2x"), 'kind is "h2x", expected one of h2d'),
        (
            measured("all_reduce", bytes=8, ranks=8, nodes=2, gpus_per_node=3),
            "ranks is 8, nodes is 2, gpus_per_node is 3: expected as many ranks",
        ),
    ],
)
def test_rows_that_are_no_kernel(row: Measurement, message: str) -> None:
    """The error names the op and what is missing."""
    with pytest.raises(MeasurementError, match=message):
        kernel_of(row)


_SIZES: dict[str, AttrValue] = {"kind": "add", "rows": 4, "cols": 8}


@pytest.mark.parametrize(
    ("given_", "line"),
    [
        (
            {"scatered": True},
            "kernel 'elementwise' has no parameter 'scatered'; did you mean 'scat",
        ),
        (
            {"scattered": "yes"},
            "kernel 'elementwise': scattered is \"yes\", expected true or false",
        ),
        (
            {"phase": "backwards"},
            "kernel 'elementwise': phase is \"backwards\", expected one of forward, ",
        ),
    ],
)
def test_a_parameter_that_is_not_declared_is_a_fault_of_its_row(
    given_: dict[str, AttrValue], line: str
) -> None:
    """Alone it is refused; among others it is left out, for the same reason."""
    row = measured("elementwise", **_SIZES, **given_)
    with pytest.raises(MeasurementError) as caught:
        kernel_of(row)
    whole = {**_SIZES, "scattered": False, "phase": "forward"}
    rows = [whole, {**_SIZES, **given_}, {**whole, **given_}, whole]
    ((found, table),), faults = kernel_tables("elementwise", "fp32", rows)

    assert str(caught.value).startswith(line)
    assert ([0, 3], 2) == (found.tolist(), len(table))
    assert {1: str(caught.value), 2: str(caught.value)} == faults


@given(params=PARAMS)
def test_whatever_the_sizes(params: Record) -> None:
    """Any sizes make a kernel or an error of perfc, for every op."""
    for op in KERNEL_OPS:
        with contextlib.suppress(PerfcError):
            assert op == kernel_of(measured(op, **params)).op


def test_bytes_of_an_unknown_dtype() -> None:
    """The dtypes that are known are named."""
    with pytest.raises(MeasurementError, match="unknown dtype 'i3'; known: fp64"):
        bytes_of("i3")
