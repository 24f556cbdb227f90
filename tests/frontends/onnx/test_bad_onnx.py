"""Damaged and contradictory ONNX files end in one clear error, on both ways in."""

from __future__ import annotations

import contextlib
import math
import random
from pathlib import Path

import hypothesis
import onnx
import pytest
from hypothesis import strategies as st
from onnx import TensorProto, helper
from tests.frontends.onnx.onnx_models import (
    constant,
    info,
    model,
    nested_ifs,
    node,
    weight,
)

import perfc
from perfc.frontends.onnx.op_map.registry import HANDLERS
from perfc.tools.cli.command_line import main

FIXTURES = Path(__file__).parents[2] / "fixtures" / "onnx"
SOUND = FIXTURES / "dlrm_small_legacy_op17.onnx"
SMALL = sorted(FIXTURES.glob("bag_*.onnx"))


def test_refuses_bytes_that_are_no_model(tmp_path: Path) -> None:
    """Truncated, random, empty and text files are told apart."""
    whole = SOUND.read_bytes()
    noise = random.Random(0).randbytes(1000)
    found = {
        "truncated": _problem_of(whole[: len(whole) // 2], tmp_path),
        "random": _problem_of(noise, tmp_path),
        "empty": _problem_of(b"", tmp_path),
        "text": _problem_of(b"graph @g() {\n}\n", tmp_path),
    }

    assert {
        "truncated": f"not an ONNX model, or a damaged one ({len(whole) // 2} bytes)",
        "random": "not an ONNX model, or a damaged one (1000 bytes)",
        "empty": "the file is empty",
        "text": "this is text, not an ONNX model; it begins 'graph @g() {\\n}\\n'",
    } == found


def test_refuses_a_folder_and_nothing(tmp_path: Path) -> None:
    """A folder and a missing file are named."""
    folder = tmp_path / "folder.onnx"
    folder.mkdir()

    assert f"{folder}: is a folder, not a model file" == _problem(folder)
    assert f"{tmp_path}/none.onnx: no such file" == _problem(tmp_path / "none.onnx")


RELU = node("Relu", "x", "y")
TO_BATCH = constant("shape", [-1, 7])
_TOO_LARGE = " has more than 2**62 bytes"
MODELS: dict[str, tuple[onnx.ModelProto, str]] = {
    "cycle": (
        model(
            [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "a", "y")]
        ),
        "the graph has a cycle through Add 'a'",
    ),
    "without operands": (
        model([node("Resize", "", "y")]),
        "Resize 'y' has no input 0",
    ),
    "defined twice": (
        model([RELU, node("Tanh", "x", "y")]),
        "value 'y' is defined twice: by Relu 'y' and by Tanh 'y'",
    ),
    "input defined again": (
        model([node("Relu", "x", "x")], outputs=[info("x", ["batch", 8])]),
        "Relu 'x' defines 'x' again, which is given already",
    ),
    "undefined operand": (
        model([node("Relu", "z", "y")]),
        "'z' is read by Relu 'y', but nothing defines it",
    ),
    "undefined output": (
        model([RELU], outputs=[info("z", [1])]),
        "'z' is read by an output of the graph, but nothing defines it",
    ),
    "no op type": (model([node("", "x", "y")]), "node 'y' has no op type"),
    "no outputs": (
        model([RELU], outputs=[]),
        "the graph has no outputs, so there is nothing to compute",
    ),
    "negative size": (
        model([RELU], inputs=[info("x", [-2, 8])]),
        "declared type of 'x': negative dimension in f32[-2,8]",
    ),
    "size overflows": (
        model([RELU], inputs=[info("x", [2**40, 2**40])]),
        f"declared type of 'x': shape overflows: f32[{2**40},{2**40}]{_TOO_LARGE}",
    ),
    "too few inputs": (
        model([node("SwiGLU", "x", "y")]),
        "SwiGLU 'y' has no input 1",
    ),
    "no inputs": (
        model([node("SoftmaxCrossEntropyLoss", "", "y")]),
        "SoftmaxCrossEntropyLoss 'y' has no input 0",
    ),
    "untyped input": (
        model([RELU], inputs=[onnx.ValueInfoProto(name="x")]),
        "input 'x' has no tensor type with a known rank",
    ),
    "declared of other kind": (
        model([RELU], outputs=[info("y", ["batch", 8], TensorProto.INT64)]),
        "%y = relu: declared i64[batch,8], inferred f32[batch,8]",
    ),
    "attribute of other kind": (
        model([node("Transpose", "x", "y", perm=1.5)]),
        "Transpose 'y': attribute 'perm' is 1.5, expected a list of integers",
    ),
    "attribute list of other kind": (
        model([node("Transpose", "x", "y", perm=[1.5, 0.5])]),
        "Transpose 'y': attribute 'perm' is (1.5, 0.5), expected a list of integers",
    ),
    "text for a number": (
        model([node("Gather", "x x", "y", axis="first")]),
        "Gather 'y': attribute 'axis' is 'first', expected an integer",
    ),
    "tensor for a number": (
        model([node("Concat", "x x", "y", axis=constant("axis", [1]))]),
        "Concat 'y': attribute 'axis' is of another kind, expected an integer",
    ),
    "too few operands": (
        model([node("Add", "x", "y")]),
        "%y = add: expected 2 operands, got 1",
    ),
    "too many results": (
        model([node("Relu", "x", "y z")]),
        "%y, %z = relu: expected 1 results, got 2",
    ),
    "branch missing": (
        model([node("If", "x", "y", then_branch=helper.make_graph([], "t", [], []))]),
        "If 'y' has no graph 'else_branch'",
    ),
    "impossible reshape": (
        model(
            [node("Reshape", "x shape", "y")],
            inputs=[info("x", [4, 8])],
            outputs=[info("y", [None, 7])],
            initializers=[TO_BATCH],
        ),
        "%y = reshape: cannot reshape f32[4,8] to [-1,7]: 32 elements",
    ),
    "two solved dimensions": (
        model(
            [node("Reshape", "x shape", "y")],
            initializers=[constant("shape", [-1, -1])],
        ),
        "%y = reshape: cannot reshape f32[batch,8] to [-1,-1]: more than one -1",
    ),
    "inner dimensions differ": (
        model([node("MatMul", "x w", "y")], initializers=[weight("w", 9, 4)]),
        "%y = matmul: inner dimensions of f32[batch,8] x f32[9,4] differ: 8 and 9",
    ),
    "axis out of range": (
        model([node("Softmax", "x", "y", axis=2)]),
        "%y = softmax: axis 2 is out of range for rank 2",
    ),
    "initializer negative": (
        model([RELU], initializers=[weight("w", -4)]),
        "initializer 'w': negative dimension in f32[-4]",
    ),
    "initializer overflows": (
        model([RELU], initializers=[weight("w", 2**62, 2**62)]),
        f"initializer 'w': shape overflows: f32[{2**62},{2**62}]{_TOO_LARGE}",
    ),
    "initializer of unknown kind": (
        model([RELU], initializers=[TensorProto(name="w", data_type=99, dims=[1])]),
        "initializer 'w' has element type 99, which perfc does not know",
    ),
    "too few bytes": (
        model(
            [RELU],
            initializers=[
                TensorProto(
                    name="w", data_type=TensorProto.FLOAT, dims=[4], raw_data=b"1234567"
                )
            ],
        ),
        "initializer 'w' holds 7 bytes, but f32[4] has 16",
    ),
    "too few numbers": (
        model(
            [RELU],
            initializers=[
                TensorProto(
                    name="w", data_type=TensorProto.INT64, dims=[4], int64_data=[1, 2]
                )
            ],
        ),
        "initializer 'w' holds 2 numbers, but i64[4] has 4",
    ),
}


def test_nesting_is_bounded(tmp_path: Path) -> None:
    """Ifs within Ifs come in, and more than protobuf reads are refused."""
    path, data = tmp_path / "deep.onnx", nested_ifs(1000)
    path.write_bytes(nested_ifs(20))
    graph = perfc.load(path, batch=4).program.classes[0].ops
    assert graph is not None

    assert ["item", "relu"] == sorted({node.op for node in graph})
    assert f"not an ONNX model, or a damaged one ({len(data)} bytes)" == _problem_of(
        data, tmp_path
    )


@pytest.mark.parametrize("case", MODELS)
def test_names_what_is_wrong(case: str, tmp_path: Path) -> None:
    """The error names the value or node, what was expected, what was found."""
    broken, expected = MODELS[case]

    assert expected == _problem_of(broken.SerializeToString(), tmp_path)


@pytest.mark.parametrize("count", range(4))
def test_any_number_of_inputs(count: int, tmp_path: Path) -> None:
    """No op trips over operands that it lacks, or over more than it has."""
    path = tmp_path / "model.onnx"
    names = " ".join("x" * count)
    for op in HANDLERS:
        domain, _, name = op.rpartition("::")
        proto = model([node(name, names, "y z", domain=domain)])
        path.write_bytes(proto.SerializeToString())
        with contextlib.suppress(perfc.PerfcError):
            perfc.load(path, batch=2)


_EMPTY = ("0 3 4 4", "2 0 4 4", "2 3 0 4", "0 8", "8 0", "0")


@pytest.mark.slow
@pytest.mark.parametrize("sizes", _EMPTY)
def test_tensors_without_elements(sizes: str, tmp_path: Path) -> None:
    """Every op takes them, or says in one line what it expects."""
    path = tmp_path / "model.onnx"
    shape = [*map(int, sizes.split())]
    for op in HANDLERS:
        domain, _, name = op.rpartition("::")
        for count in range(1, 5):
            called = node(name, " ".join("x" * count), "y", domain=domain)
            proto = model([called], inputs=[info("x", shape)])
            proto.graph.output[0].type.Clear()
            path.write_bytes(proto.SerializeToString())
            with contextlib.suppress(perfc.PerfcError):
                perfc.analyze(str(path), "a100")


def test_no_elements_at_all(tmp_path: Path) -> None:
    """An op on nothing costs the host only."""
    path = tmp_path / "model.onnx"
    inputs = [info("x", [0, 8]), info("w", [8, 4])]
    proto = model([node("MatMul", "x w", "m"), node("Relu", "m", "y")], inputs=inputs)
    path.write_bytes(proto.SerializeToString())
    summary = perfc.analyze(str(path), "a100", inputs="device").to_dict()["summary"]

    assert (0, 0.0) == (summary["launches"], summary["gpu_active_us"])
    assert summary["host_us"] > 0


@pytest.mark.parametrize("case", ["cycle", "declared of other kind", "too few bytes"])
def test_command_line_says_it_in_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, one line on stderr, nothing on stdout, no output file."""
    path, output = tmp_path / "model.onnx", tmp_path / "report.json"
    path.write_bytes(MODELS[case][0].SerializeToString())
    arguments = ["--target", "a100", "--batch", "4", "-o", str(output)]
    code = main(["analyze", str(path), *arguments])
    captured = capsys.readouterr()

    assert 1 == code
    assert "" == captured.out
    assert [True] == [
        line.startswith("perfc: error: ") for line in captured.err.splitlines()
    ]
    assert not output.exists()


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(data=st.data())
def test_no_damage_escapes(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever bytes are changed, only a PerfcError leaves `load`."""
    damaged = bytearray(data.draw(st.sampled_from(SMALL)).read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(len(damaged) // 2, len(damaged)))
    _load_quietly(bytes(damaged[:cut]), tmp_path_factory)


_NUMBERS = st.sampled_from([-(2**63), -3, -1, 0, 1, 2, 7, 2**31, 2**63 - 1])


@hypothesis.settings(max_examples=250, deadline=None)
@hypothesis.given(data=st.data())
def test_no_contradiction_escapes(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever fields are changed, only a PerfcError leaves `load`."""
    path = data.draw(st.sampled_from([*SMALL, SOUND]))
    broken = onnx.load(path, load_external_data=False)
    for _ in range(data.draw(st.integers(1, 4))):
        _change(broken.graph, data)
    _load_quietly(broken.SerializeToString(), tmp_path_factory)


def _change(graph: onnx.GraphProto, data: st.DataObject) -> None:
    """Change one field of one node, or of what is declared."""
    if not graph.node:
        return  # a branch that only returns a value from outside
    target = data.draw(st.sampled_from(list(graph.node)))
    inner = [a.g for a in target.attribute if a.type == onnx.AttributeProto.GRAPH]
    depth: int = data.draw(st.integers(0, 1))
    if inner and depth:
        _change(data.draw(st.sampled_from(inner)), data)
        return
    change = data.draw(st.sampled_from(_CHANGES))
    change(graph, target, data)


def _change_op(
    graph: onnx.GraphProto, target: onnx.NodeProto, data: st.DataObject
) -> None:
    others = [other.op_type for other in graph.node]
    target.op_type = data.draw(
        st.sampled_from([*others, "Scan", "Split", "Gemm", "If"])
    )


def _change_operand(
    graph: onnx.GraphProto, target: onnx.NodeProto, data: st.DataObject
) -> None:
    names = [name for other in graph.node for name in (*other.input, *other.output)]
    if target.input and names:
        index = data.draw(st.integers(0, len(target.input) - 1))
        target.input[index] = data.draw(st.sampled_from(names))


def _drop_operand(
    graph: onnx.GraphProto, target: onnx.NodeProto, data: st.DataObject
) -> None:
    del target.input[-1:]


def _add_result(
    graph: onnx.GraphProto, target: onnx.NodeProto, data: st.DataObject
) -> None:
    target.output.append(data.draw(st.sampled_from(["", "extra"])))


def _drop_result(
    graph: onnx.GraphProto, target: onnx.NodeProto, data: st.DataObject
) -> None:
    del target.output[-1:]


def _change_some_attribute(
    graph: onnx.GraphProto, target: onnx.NodeProto, data: st.DataObject
) -> None:
    if target.attribute:
        _change_attribute(data.draw(st.sampled_from(list(target.attribute))), data)


def _change_declaration(
    graph: onnx.GraphProto, target: onnx.NodeProto, data: st.DataObject
) -> None:
    declared = [*graph.input, *graph.output, *graph.value_info]
    dims = [dim for value in declared for dim in value.type.tensor_type.shape.dim]
    if dims:
        data.draw(st.sampled_from(dims)).dim_value = data.draw(_NUMBERS)


def _drop_node(
    graph: onnx.GraphProto, target: onnx.NodeProto, data: st.DataObject
) -> None:
    if len(graph.node) > 1:
        graph.node.remove(target)


_CHANGES = (
    *(_change_op, _change_operand, _drop_operand, _add_result, _drop_result),
    *(_change_some_attribute, _change_declaration, _drop_node),
)


def _change_attribute(attribute: onnx.AttributeProto, data: st.DataObject) -> None:
    number = data.draw(_NUMBERS)
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = number
    elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        attribute.ints[0] = number
    elif attribute.type == onnx.AttributeProto.TENSOR:
        dims = list(attribute.t.dims)
        if math.prod(dims) < 100 and data.draw(st.integers(0, 1)):
            numbers = [number] * math.prod(dims)
            changed = helper.make_tensor("", TensorProto.INT64, dims, numbers)
            attribute.t.CopyFrom(changed)
        else:
            attribute.t.dims.append(data.draw(st.integers(0, 3)))
    else:
        attribute.type = onnx.AttributeProto.FLOAT


def _load_quietly(data: bytes, folders: pytest.TempPathFactory) -> None:
    path = folders.getbasetemp() / "damaged.onnx"
    path.write_bytes(data)
    with contextlib.suppress(perfc.PerfcError):
        perfc.load(path, batch=4)


def _problem_of(data: bytes, folder: Path) -> str:
    """Return the error that *data* cause, without the name of the file."""
    path = folder / "model.onnx"
    path.write_bytes(data)
    return _problem(path).removeprefix(f"{path}: ")


def _problem(path: Path) -> str:
    with pytest.raises(perfc.PerfcError) as caught:
        perfc.load(path)
    return str(caught.value)
