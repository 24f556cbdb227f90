"""ONNX ops as each opset spells them, and what onnx has no case for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.shape_inference import infer_shapes
from tests.frontends.onnx.onnx_models import constant, info, node, weight

from perfc.frontends.onnx import OnnxFrontend
from perfc.ir import Graph, Node, PerfcError
from perfc.passes import PassManager, ShapeInference
from perfc.passes.shapes import FoldShapes

FLOAT = TensorProto.FLOAT


def _load(
    path: Path,
    nodes: list[onnx.NodeProto],
    *tensors: onnx.TensorProto,
    opset: int = 18,
    shape: tuple[int | str, ...] = ("batch", 4, 8, 8),
) -> Graph:
    """Read nodes that read `x` and write `y`, with shape arithmetic folded."""
    return _folded(path, _model(nodes, tensors, opset, shape))


def _model(
    nodes: list[onnx.NodeProto],
    tensors: Sequence[onnx.TensorProto],
    opset: int,
    shape: tuple[int | str, ...],
) -> onnx.ModelProto:
    output = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph(nodes, "g", [info("x", shape)], [output], list(tensors))
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _folded(path: Path, model: onnx.ModelProto) -> Graph:
    path.write_bytes(model.SerializeToString())
    program = OnnxFrontend().load(path)
    passes = [ShapeInference(), FoldShapes()]
    ops = PassManager(passes).run(program).program.classes[0].ops
    assert ops is not None
    return ops


def _type(graph: Graph) -> str:
    return str(graph.outputs[0].type)


def _only(graph: Graph) -> Node:
    (found,) = [node for node in graph if node.op != "constant"]
    return found


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def _floats(name: str, *values: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.float32), name)


@pytest.mark.parametrize(
    ("made", "tensors", "opset", "op", "type_"),
    [
        (node("Softmax", "x", "y", axis=1), [], 12, "softmax", "f32[batch,4,8,8]"),
        (
            node("ReduceSum", "x", "y", axes=[1, 3], keepdims=0),
            [],
            11,
            "reduce",
            "f32[batch,8]",
        ),
        (
            node("Clip", "x lo", "y"),
            [_floats("lo", 0.0)],
            11,
            "clip",
            "f32[batch,4,8,8]",
        ),
        (
            node("Unsqueeze", "x", "y", axes=[0]),
            [],
            11,
            "unsqueeze",
            "f32[1,batch,4,8,8]",
        ),
        (
            node("Split", "x", "y z", axis=1, split=[1, 3]),
            [],
            11,
            "split",
            "f32[batch,1,8,8]",
        ),
        (node("Split", "x", "y z", axis=1), [], 11, "split", "f32[batch,2,8,8]"),
        (
            node("Resize", "x - s", "y", mode="cubic"),
            [_floats("s", 1, 1, 1.5, 0.5)],
            13,
            "resize",
            "f32[batch,4,12,4]",
        ),
        (
            node("Resize", "x - - n", "y"),
            [constant("n", [2, 4, 5, 6])],
            19,
            "resize",
            "f32[2,4,5,6]",
        ),
        (
            node("BatchNormalization", "x s s s s", "y m v a b"),
            [weight("s", 4)],
            11,
            "batch_norm",
            "f32[batch,4,8,8]",
        ),
        (
            node("BatchNormalization", "x s s s s", "y m v", training_mode=1),
            [weight("s", 4)],
            15,
            "batch_norm",
            "f32[batch,4,8,8]",
        ),
        (node("GlobalLpPool", "x", "y"), [], 11, "reduce", "f32[batch,4,1,1]"),
        (
            node("MaxRoiPool", "x r", "y", pooled_shape=[3, 2]),
            [weight("r", 7, 5)],
            11,
            "roi_pool",
            "f32[7,4,3,2]",
        ),
        (
            node("RandomNormal", "", "y", shape=[2, 3], dtype=TensorProto.FLOAT16),
            [],
            11,
            "random",
            "f16[2,3]",
        ),
        (node("RandomUniform", "", "y", shape=[7]), [], 11, "random", "f32[7]"),
        (node("RandomNormalLike", "x", "y"), [], 11, "random", "f32[batch,4,8,8]"),
        (
            node("Mod", "x x", "y", fmod=1),
            [],
            11,
            "fmod",
            "f32[batch,4,8,8]",
        ),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else None,
)
def test_spellings(
    path: Path,
    made: onnx.NodeProto,
    tensors: list[onnx.TensorProto],
    opset: int,
    op: str,
    type_: str,
) -> None:
    """An op means what its opset says, whether attributes or operands hold it."""
    made.input[:] = [name for name in made.input if name or len(made.input) > 1]
    graph = _load(path, [made], *tensors, opset=opset)

    assert (op, type_) == (_only(graph).op, _type(graph))


def test_multinomial(path: Path) -> None:
    """Samples of classes are 32-bit unless the file says otherwise."""
    made = node("Multinomial", "x", "y", sample_size=5)
    graph = _load(path, [made], shape=("batch", 10))

    assert "i32[batch,5]" == _type(graph)


@pytest.mark.parametrize(("opset", "flat"), [(12, True), (13, None)])
def test_softmax_of_old_opsets_is_flat(
    path: Path,
    opset: int,
    flat: bool | None,
) -> None:
    """Before opset 13 the axes from the given one on are one row."""
    graph = _load(path, [node("Softmax", "x", "y")], opset=opset)
    found = _only(graph).attributes

    assert (1 if flat else -1, flat) == (found["axis"], found.get("flat"))


def test_dropout_in_inference(path: Path) -> None:
    """Without training nothing is dropped, and a mask that is read is filled."""
    made = [node("Dropout", "x", "d m"), node("Where", "m d x", "y")]
    graph = _load(path, made)

    assert ["constant", "fill", "where"] == [node.op for node in graph]


def test_dropout_in_training(path: Path) -> None:
    """A training flag that is set makes a mask."""
    flag = numpy_helper.from_array(np.array([True])[0], "t")
    ratio = numpy_helper.from_array(np.array([0.5], np.float32)[0], "r")
    graph = _load(path, [node("Dropout", "x r t", "y")], flag, ratio)

    assert "dropout" == _only(graph).op


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_any_number_of_operands(path: Path, op: str, count: int) -> None:
    """Ops of any number of operands become pairs."""
    made = node(op, " ".join(["x"] * count), "y")
    found = [node.op for node in _load(path, [made]) if node.op != "constant"]

    pairs = {"Max": "maximum", "Min": "minimum"}.get(op, "add")
    assert [pairs] * (count - 1) + ["div"] * (op == "Mean") == found


def test_quantised_weights_are_parameters(path: Path) -> None:
    """Quantised weights, and scales, lie in memory; a list of axes does not."""
    tensors = [
        TensorProto(name="w", data_type=TensorProto.INT8, dims=[16, 4, 3, 3]),
        TensorProto(name="table", data_type=TensorProto.INT64, dims=[100, 100]),
    ]
    for tensor in tensors:
        tensor.data_location = TensorProto.EXTERNAL
    zero = numpy_helper.from_array(np.zeros((2, 2), np.uint8), "small")
    axes = constant("axes", [0])
    made = [
        node("DequantizeLinear", "w s", "d"),
        node("Conv", "x d", "c"),
        node("Shape", "small", "n"),
        node("Shape", "table", "k"),
        node("ReduceSum", "c axes", "y"),
    ]
    scale = _floats("s", 0.5)
    model = _model(made, [*tensors, zero, axes, scale], 18, (1, 4, 8, 8))
    path.write_bytes(model.SerializeToString())
    ops = OnnxFrontend().load(path).classes[0].ops
    assert ops is not None

    assert ["w", "table", "small", "s"] == [value.name for value in ops.parameters]


@attrs.frozen
class _Window:
    """A window over an image, as ONNX writes it."""

    op: str
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    attributes: dict[str, Any]


@st.composite
def _windows(draw: st.DrawFn) -> _Window:
    axes = draw(st.integers(1, 3))

    def each(least: int, most: int, count: int = axes) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(count))

    op = draw(st.sampled_from(["Conv", "ConvTranspose", "MaxPool", "AveragePool"]))
    attributes: dict[str, Any] = {"strides": each(1, 3), "dilations": each(1, 2)}
    way = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    attributes["auto_pad"] = way
    if way == "NOTSET":
        attributes["pads"] = each(0, 1, 2 * axes)
    if "Pool" in op:
        # onnx's own rule for padded pools in ceil mode has changed over time.
        attributes["ceil_mode"] = int(way == "VALID" and draw(st.booleans()))
    # Where stride exceeds the window, onnx does not infer n * stride as it says.
    least = 3 if op == "ConvTranspose" and way.startswith("SAME") else 1
    return _Window(op, each(5, 12), each(least, 3), attributes)


@settings(max_examples=150)
@given(window=_windows())
def test_windows_are_as_onnx_infers(
    tmp_path_factory: pytest.TempPathFactory, window: _Window
) -> None:
    """Output sizes of convolutions and pools equal those of onnx's inference."""
    attributes = dict(window.attributes)
    names, tensors = "x", []
    if "Pool" in window.op:
        attributes["kernel_shape"] = window.kernel
    else:
        names, tensors = "x w", [weight("w", 4, 4, *window.kernel)]
    made = node(window.op, names, "y", **attributes)
    model = _model([made], tensors, 22, (2, 4, *window.size))
    inferred = infer_shapes(model).graph.output[0].type.tensor_type.shape
    expected = [dim.dim_value for dim in inferred.dim]
    path = tmp_path_factory.getbasetemp() / "window.onnx"
    if min(expected) < 1:
        with pytest.raises(PerfcError, match="does not fit"):
            _folded(path, model)
        return
    type_ = _folded(path, model).outputs[0].type
    assert type_ is not None

    assert expected == list(type_.shape)
