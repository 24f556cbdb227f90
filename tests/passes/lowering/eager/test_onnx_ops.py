"""What eager PyTorch launches for the ops beyond GEMMs, copies and arithmetic."""

from __future__ import annotations

import pytest
from tests.passes.lowered import kernels, launched, lower, one_op

from perfc.ir import LaunchGraph, TaskKind


def _syncs(graph: LaunchGraph) -> int:
    """Count the waits of the host, but for the last."""
    return list(graph.kind).count(TaskKind.SYNC) - 1


@pytest.mark.parametrize(
    ("kind", "gates", "name"),
    [("lstm", 4, "aten::lstm"), ("gru", 3, "aten::gru"), ("rnn", 1, "aten::rnn_tanh")],
)
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent(kind: str, gates: int, name: str, directions: int) -> None:
    """A GEMM for all inputs, then a GEMM and the gates at each step."""
    rows = gates * 64
    text = (
        f"graph @g(%x: f32[5,8,32], param %w: f32[{directions},{rows},32], "
        f"param %r: f32[{directions},{rows},64]) {{\n"
        f'%y, %h = recurrent(%x, %w, %r) {{kind = "{kind}"}} : ?, ?\n return %y }}'
    )
    graph = lower(text)
    found = kernels(graph)
    projection, step, elementwise = found[:3]

    assert {name: [*["gemm"], *["gemm", "elementwise"] * 5] * directions} == launched(
        graph
    )
    assert (40, rows, 32) == tuple(projection.params[n] for n in "mnk")
    assert (8, rows, 64) == tuple(step.params[n] for n in "mnk")
    assert elementwise.work.bytes_read == 4 * 8 * 64 * (2 * gates + 1)
    flops = sum(kernel.work.flops for kernel in found if kernel.op == "gemm")
    assert 2 * 5 * 8 * rows * (32 + 64) * directions == flops


def test_a_sequence_without_end() -> None:
    """A sequence of absurd length is one kernel, and marked."""
    text = one_op(
        "%x: f32[100000,1,4], param %w: f32[1,16,4], param %r: f32[1,16,4]",
        'recurrent(%x, %w, %r) {kind = "lstm"}',
    )
    (kernel,) = kernels(lower(text))

    assert not kernel.known


@pytest.mark.parametrize(
    ("target", "mode"), [("a100", "int8"), ("p100", "fp32"), ("", "int8")]
)
def test_integer_gemms(target: str, mode: str) -> None:
    """8-bit GEMMs run at the int8 rate where the device has one."""
    text = one_op("%x: u8[8,64], param %w: i8[64,32]", "matmul(%x, %w) {dtype = !i32}")
    (gemm,) = kernels(lower(text, target=target))
    text = one_op(
        "%x: u8[1,8,9,9], param %w: i8[4,8,3,3], param %b: i32[4], %s: f32[]",
        "conv(%x, %w, %b, %s) {dtype = !u8}",
    )
    (convolution,) = kernels(lower(text, target=target))

    assert ("int8", mode) == (gemm.dtype, gemm.math)
    assert 8 * 64 + 64 * 32 == gemm.work.bytes_read
    assert mode == convolution.math


def test_wide_integer_gemms() -> None:
    """GEMMs of wide integers run on the CUDA cores."""
    text = one_op("%x: i64[8,64], %w: i64[64,32]", "matmul(%x, %w)")
    (gemm,) = kernels(lower(text, target="a100"))

    assert "fp32" == gemm.math


def test_transposed_convolution() -> None:
    """It is the data gradient of the convolution the other way round."""
    text = one_op(
        "%x: f32[2,16,8,8], param %w: f32[16,4,4,4], param %b: f32[4]",
        "conv_transpose(%x, %w, %b) {stride = [2, 2], padding = [1, 1, 1, 1]}",
    )
    cleared, convolution, bias = kernels(lower(text))
    params = convolution.params

    assert ("conv2d", "backward_data") == (convolution.op, params["phase"])
    assert (4, 16, 16) == (params["c_in"], params["c_out"], params["size"])
    assert 2 * 2 * 16 * 64 * 4 * 16 == convolution.work.flops
    assert ("clear", "add") == (cleared.params["kind"], bias.params["kind"])


def test_automatic_padding() -> None:
    """Padding that is not the same on both sides is written first."""
    arguments = "%x: f32[1,8,8,8], param %w: f32[8,8,3,3]"
    even = one_op(arguments, 'conv(%x, %w) {auto_pad = "same_upper"}')
    odd = one_op(arguments, 'conv(%x, %w) {auto_pad = "same_upper", stride = [2, 2]}')

    def kinds(text: str) -> list[object]:
        return [k.params.get("kind", k.op) for k in kernels(lower(text))]

    assert ["offsets", "conv2d"] == kinds(even)
    assert ["fill", "copy", "offsets", "conv2d"] == kinds(odd)


def test_deformable_convolution() -> None:
    """Columns and a GEMM per group, for as many images as torchvision takes."""
    text = one_op(
        "%x: f32[64,8,9,9], param %w: f32[8,4,3,3], %o: f32[64,18,7,7]",
        "deform_conv(%x, %w, %o) {groups = 2}",
    )
    found = launched(lower(text))

    assert {
        "torchvision::deform_conv2d": ["deformable_im2col", "gemm", "gemm"] * 2
    } == found


def test_images_of_a_deformed_convolution_are_launched_up_to_a_limit() -> None:
    """A batch of many images that cannot be taken together is one kernel, and said."""
    node = "deform_conv(%x, %w, %o) {groups = 1}"
    images = 5_003  # a prime number
    arguments = "%x: f32[{0},4,8,8], %w: f32[4,4,1,1], %o: f32[{0},2,8,8]"
    some = kernels(lower(one_op(arguments.format(4_999), node)))
    (many,) = kernels(lower(one_op(arguments.format(images), node)))

    assert 2 * 4_999 == len(some)
    assert (False, 4 * (2 * 4 + 2) * 64 * images + 64) == (
        many.known,
        many.work.bytes_read + many.work.bytes_written,
    )


@pytest.mark.parametrize(
    ("equation", "sizes", "ops"),
    [
        ("bthd,bshd->bhts", (24, 5, 7, 16), ["elementwise", "elementwise", "gemm"]),
        ("bhtd,bhsd->bhts", (24, 5, 7, 16), ["gemm"]),
    ],
)
def test_einsum(equation: str, sizes: tuple[int, ...], ops: list[str]) -> None:
    """A pair of operands is a batched GEMM, after a copy where axes lie apart."""
    shapes = {"b": "6", "h": "4", "t": "5", "s": "7", "d": "16"}
    terms = equation.partition("->")[0].split(",")
    left, right = (",".join(shapes[letter] for letter in term) for term in terms)
    text = one_op(
        f"%x: f32[{left}], %w: f32[{right}]",
        f'einsum(%x, %w) {{equation = "{equation}"}}',
    )
    found = kernels(lower(text))

    assert ops == [kernel.op for kernel in found]
    assert sizes == tuple(found[-1].params[name] for name in "bmnk")


def test_einsum_without_a_sum() -> None:
    """A product without a sum is a multiplication, one operand is a view or a sum."""
    outer = one_op("%x: f32[4], %w: f32[5]", 'einsum(%x, %w) {equation = "i,j->ij"}')
    turned = one_op("%x: f32[4,5]", 'einsum(%x) {equation = "ij->ji"}')
    summed = one_op("%x: f32[4,5]", 'einsum(%x) {equation = "ij->i"}')

    assert {"aten::einsum": ["elementwise"]} == launched(lower(outer))
    assert {"aten::einsum": []} == launched(lower(turned))
    assert {"aten::einsum": ["reduction"]} == launched(lower(summed))


@pytest.mark.parametrize(
    ("arguments", "call", "waits"),
    [
        ("%x: f32[8,8]", "nonzero(%x)", 1),
        ("%x: f32[8,8], %c: bool[8]", "compress(%x, %c) {axis = 0}", 1),
        ("%x: f32[8]", "dynamic_quantize(%x)", 2),
    ],
)
def test_reading_back(arguments: str, call: str, waits: int) -> None:
    """Where data decide a size, or a scale, the host waits for the device."""
    type_ = _RESULTS[call.partition("(")[0]]
    text = one_op(arguments, call).replace(": ?", f": {type_}")
    graph = lower(text)

    assert waits == _syncs(graph)


_RESULTS = {"nonzero": "i64[2,5]", "compress": "f32[5,8]", "dynamic_quantize": "u8[8]"}


@pytest.mark.parametrize(
    ("call", "steps"),
    [
        ("softsign(%x)", 3),
        ("isinf(%x)", 2),
        ('reduce(%x) {kind = "sum_square"}', 2),
        ('reduce(%x) {kind = "log_sum"}', 2),
        ('reduce(%x) {kind = "log_sum_exp"}', 9),
        ("hardmax(%x) {axis = -1}", 3),
        ("local_response_norm(%x) {size = 5}", 8),
        ('pool(%x) {kind = "lp", window = [2, 2]}', 8),
        ("log_softmax(%x) {axis = 1, flat = true}", 1),
        ("argmax(%x) {axis = 1}", 1),
        ("cumsum(%x) {axis = 1}", 1),
        ("dropout(%x)", 1),
    ],
)
def test_steps(call: str, steps: int) -> None:
    """Ops that PyTorch writes as others launch a kernel for each of these."""
    graph = lower(one_op("%x: f32[4,6,8,8]", call))

    assert steps == len(kernels(graph))


def test_training_statistics_are_reread() -> None:
    """A batch norm in training says so: it reads its input twice."""
    text = (
        "graph @g(%x: f32[2,4,8,8], param %s: f32[4]) {\n"
        "%y, %m, %v = batch_norm(%x, %s, %s, %s, %s) {training = true} : ?, ?, ?\n"
        "return %y }"
    )
    (kernel,) = kernels(lower(text))

    assert "training" == kernel.params["kind"]
