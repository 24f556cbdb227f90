"""What eager PyTorch launches to compute."""

from __future__ import annotations

import pytest
from tests.passes.lowered import (
    LINEAR,
    kernels,
    launched,
    lower,
    names,
    one_op,
    record,
)

from perfc.passes import LowerKernels


def test_linear_is_one_gemm() -> None:
    """`linear` is a GEMM whose B is stored as [n,k]; its kernel adds the bias."""
    (kernel,) = kernels(lower(LINEAR))

    sizes = record(b=1, m=8, n=64, k=13, layout="nt", bias=True)
    assert ("gemm", "fp32", "fp32") == (kernel.op, kernel.dtype, kernel.math)
    assert sizes == kernel.params
    assert 2 * 8 * 64 * 13 + 8 * 64 == kernel.work.flops


def test_weight_stored_by_columns_is_nn() -> None:
    """A weight [k,n] is read as it is stored."""
    text = one_op(
        "%x: f32[8,13], param %w: f32[13,64]", "linear(%x, %w) {weight_is_kn = true}"
    )
    (kernel,) = kernels(lower(text))

    assert "nn" == kernel.params["layout"]


def test_bias_may_be_copied_first() -> None:
    """Before cublasLt a kernel copied the bias into the output."""
    options = LowerKernels(inputs="device", fused_bias=False)

    copy, gemm = kernels(lower(LINEAR, options))
    assert ("elementwise", "copy") == (copy.op, copy.params["kind"])
    assert "gemm" == gemm.op


def test_bias_of_one_column_is_copied_first() -> None:
    """CublasLt does not take a GEMM with one column."""
    text = LINEAR.replace("64", "1")

    assert {"aten::linear": ["elementwise", "gemm"]} == launched(lower(text))


def test_leading_axes_of_linear_are_rows() -> None:
    """A batch of matrices times a weight is one GEMM."""
    text = one_op("%x: f32[4,8,13], param %w: f32[64,13]", "linear(%x, %w)")
    (kernel,) = kernels(lower(text))

    assert (1, 32) == (kernel.params["b"], kernel.params["m"])


def test_transposed_operand_is_a_layout() -> None:
    """`bmm` reads a transposed batch through its layout, without a copy."""
    graph = lower("""graph @g(%x: f32[8,9,64]) {
      %t = transpose(%x) {perm = [0, 2, 1]} : ?
      %z = matmul(%x, %t) : ?
      return %z }""")

    assert {"aten::transpose": [], "aten::bmm": ["gemm"]} == launched(graph)
    sizes = record(b=8, m=9, n=9, k=64, layout="nt")
    assert sizes == kernels(graph)[0].params


@pytest.mark.parametrize(
    ("left", "right", "sizes"),
    [
        ("4,8", "8,5", (1, 4, 5, 8)),
        ("3,4,8", "8,5", (1, 12, 5, 8)),
        ("3,4,8", "3,8,5", (3, 4, 5, 8)),
        ("2,3,4,8", "2,3,8,5", (6, 4, 5, 8)),
        ("2,1,4,8", "3,8,5", (6, 4, 5, 8)),
        ("8", "8,5", (1, 1, 5, 8)),
        ("4,8", "8", (1, 4, 1, 8)),
        ("8", "8", (1, 1, 1, 8)),
    ],
)
def test_matmul_sizes(left: str, right: str, sizes: tuple[int, ...]) -> None:
    """Batch axes are flattened; a vector is a matrix of one row or column."""
    text = one_op(f"%a: f32[{left}], %b: f32[{right}]", "matmul(%a, %b)")
    (kernel,) = kernels(lower(text))

    assert sizes == tuple(kernel.params[name] for name in "bmnk")
    b, m, n, k = sizes
    assert 2 * b * m * n * k == kernel.work.flops


def test_heads_have_to_be_copied_for_a_gemm() -> None:
    """Two batch axes that lie apart cannot flatten without a copy."""
    graph = lower("""graph @g(%x: f32[2,128,12,64]) {
      %q = transpose(%x) {perm = [0, 2, 1, 3]} : ?
      %k = transpose(%x) {perm = [0, 2, 3, 1]} : ?
      %z = matmul(%q, %k) : ?
      return %z }""")

    assert ["elementwise", "elementwise", "gemm"] == launched(graph)["aten::matmul"]


@pytest.mark.parametrize(
    ("target", "tf32", "math"),
    [
        ("a100", False, "fp32"),
        ("a100", True, "tf32"),
        ("v100", True, "fp32"),
        ("mi210", False, "fp32_tensor"),
        ("mi210", True, "fp32_tensor"),
        ("mi300x", False, "fp32_tensor"),
        ("mi300x", True, "tf32"),
    ],
)
def test_tf32_is_asked_for(target: str, tf32: bool, math: str) -> None:
    """PyTorch uses TF32 on request, where the device has it, and AMD's matrix cores."""
    options = LowerKernels(inputs="device", tf32=tf32)

    assert math == kernels(lower(LINEAR, options, target))[0].math


@pytest.mark.parametrize(
    ("dtype", "name", "math"),
    [("f16", "fp16", "fp16"), ("bf16", "bf16", "bf16"), ("f64", "fp64", "fp64_tensor")],
)
def test_storage_decides_the_math(dtype: str, name: str, math: str) -> None:
    """Narrow GEMMs run on tensor cores; other kernels compute in fp32."""
    gemm = lower(LINEAR.replace("f32", dtype), target="a100")
    relu = lower(one_op(f"%x: {dtype}[4,8]", "relu(%x)"), target="a100")

    assert (name, math) == (kernels(gemm)[0].dtype, kernels(gemm)[0].math)
    vector = "fp64" if dtype == "f64" else "fp32"
    assert (name, vector) == (kernels(relu)[0].dtype, kernels(relu)[0].math)


@pytest.mark.parametrize(
    ("arguments", "node", "name", "params"),
    [
        ("%x: f32[4,8]", "relu(%x)", "aten::relu", (4, 8, 1, None)),
        ("%x: f32[4,8], %z: f32[4,8]", "mul(%x, %z)", "aten::mul", (4, 8, 2, None)),
        ("%x: f32[4,8], %z: f32[8]", "add(%x, %z)", "aten::add", (4, 8, 1, 288)),
        ("%x: i64[4,8], %z: i64[4,8]", "equal(%x, %z)", "aten::eq", (4, 8, 2, 544)),
        ("%x: f32[]", "neg(%x)", "aten::neg", (1, 1, 1, None)),
    ],
)
def test_elementwise(
    arguments: str, node: str, name: str, params: tuple[int | None, ...]
) -> None:
    """Inputs as large as the output are counted; other traffic stands in bytes."""
    graph = lower(one_op(arguments, node))
    (kernel,) = kernels(graph)

    assert [name] == names(graph)
    fields = ("rows", "cols", "tensor_inputs", "bytes")
    assert params == tuple(kernel.params.get(field) for field in fields)


@pytest.mark.parametrize(
    ("node", "name", "op", "rows", "columns"),
    [
        ("softmax(%x) {axis = -1}", "aten::softmax", "softmax", 15, 7),
        ("softmax(%x) {axis = 0}", "aten::softmax", "softmax", 35, 3),
        ("layer_norm(%x) {axis = 1}", "aten::layer_norm", "layer_norm", 3, 35),
        (
            'reduce(%x) {kind = "mean", axes = [0, 2]}',
            "aten::mean",
            "reduction",
            5,
            21,
        ),
        ('reduce(%x) {kind = "max"}', "aten::amax", "reduction", 1, 105),
    ],
)
def test_rows_and_columns(
    node: str, name: str, op: str, rows: int, columns: int
) -> None:
    """Kernels that walk rows say how many and how long."""
    graph = lower(one_op("%x: f32[3,5,7]", node))
    (kernel,) = kernels(graph)

    assert ([name], op) == (names(graph), kernel.op)
    assert (rows, columns) == (kernel.params["rows"], kernel.params["cols"])


def test_convolution() -> None:
    """A convolution is a GEMM; PyTorch adds its bias afterwards."""
    text = one_op(
        "%x: f32[2,8,16,16], param %w: f32[32,4,3,3], param %b: f32[32]",
        "conv(%x, %w, %b) {stride = [2, 2], padding = [1, 1, 1, 1], groups = 2}",
    )
    graph = lower(text)
    kernel = kernels(graph)[1]

    assert ["elementwise", "conv2d", "elementwise"] == launched(graph)["aten::conv2d"]
    sizes = {"n": 2, "c_in": 8, "c_out": 32, "kernel": 3, "size": 16}
    rest = {"stride": 2, "padding": 1, "groups": 2}
    known = {**sizes, **rest}
    assert known == {name: kernel.params[name] for name in known}
    assert 2 * (2 * 32 * 8 * 8) * (4 * 3 * 3) == kernel.work.flops


def test_pool() -> None:
    """A pool is one kernel over windows."""
    text = one_op(
        "%x: f32[2,8,16,16]",
        'pool(%x) {kind = "max", window = [2, 2], stride = [2, 2]}',
    )

    assert {"aten::max_pool2d": ["pool"]} == launched(lower(text))


def test_convolution_of_lists_and_volumes() -> None:
    """A 1-d convolution runs as a 2-d one of height 1, a 3-d one has its own kernel."""
    text = one_op("%x: f32[2,8,9], param %w: f32[4,8,3]", "conv(%x, %w)")
    line = kernels(lower(text))[-1]
    text = one_op("%x: f32[2,8,4,4,4], param %w: f32[8,8,2,2,2]", "conv(%x, %w)")
    volume = kernels(lower(text))[-1]

    assert ("conv2d", (1, 3), (1, 9)) == (
        line.op,
        line.params["kernel"],
        line.params["size"],
    )
    assert ("conv3d", 2) == (volume.op, volume.params["kernel"])
    assert line.known
    assert volume.known
