"""What Kineto traces of any age say of arguments."""

from __future__ import annotations

import pytest

from perfc.ir import DTYPES
from perfc.traces import RecordedTensor
from perfc.traces.inputs import UNRECORDED, RawInputs

F32, BF16 = DTYPES["f32"], DTYPES["bf16"]


def test_a_newer_trace_tells_numbers_and_strides() -> None:
    """Tensors have type and strides, numbers are numbers, what is absent is None."""
    raw = RawInputs(
        [[4, 8], [8, 2], [], [], []],
        ["c10::BFloat16", "float", "Scalar", "ScalarList", ""],
        ["", "", "0.", "[-1, 2]", ""],
        [[8, 1], [1, 8], [], [], []],
    )

    op = raw.op("aten::mm")

    assert op.name == "aten::mm"
    assert op.arguments == (
        RecordedTensor((4, 8), BF16, (8, 1)),
        RecordedTensor((8, 2), F32, (1, 8)),
        0.0,
        (-1, 2),
        None,
    )
    assert ((4, 8), (8, 2), (), (), ()) == op.shapes() == raw.shapes()


def test_an_older_trace_tells_tensors_only() -> None:
    """Of numbers and of lists of tensors only the places are known."""
    raw = RawInputs([[4, 8], [], []], ["float", "Scalar", "TensorList"], None, None)

    tensor, number, tensors = raw.op("aten::add").arguments

    assert tensor == RecordedTensor((4, 8), F32)
    assert number is UNRECORDED
    assert tensors is UNRECORDED


def test_lists_of_tensors_have_shapes_and_no_types() -> None:
    """Newer traces tell the shape of each tensor of a list."""
    raw = RawInputs([[[2, 3], [4, 3]], []], ["TensorList", "Scalar"], ["", "0"], None)

    tensors, axis = raw.op("aten::cat").arguments

    assert tensors == (RecordedTensor((2, 3), None), RecordedTensor((4, 3), None))
    assert axis == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("<None>", None),
        ("True", True),
        ("[True, False]", (True, False)),
        ("1", 1),
        ("-1.", -1.0),
        ("9.9999999999999998e-13", 1e-12),
        ("[0., 2]", (0.0, 2)),
        ("mean", "mean"),
        ("[[1", "[[1"),
        ("{}", None),
    ],
)
def test_concrete_inputs(text: str, value: object) -> None:
    """Numbers, truth values and lists are read as C++ writes them; the rest is text."""
    raw = RawInputs([[]], ["Scalar"], [text], None)

    assert (value,) == raw.op("aten::x").arguments
