"""Functions of the model, and ops that ONNX defines by functions, are inlined."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest
from tests.frontends.onnx.onnx_models import info, model, node

import perfc
from perfc.frontends.onnx.functions import schema_function
from perfc.ir import Graph
from perfc.tools.cli.command_line import main

HEAD = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>'
MAIN = f"""{HEAD}
main (float[2,8] x) => (float[2,8] y) {{
  [outer] y = local.block <scale = 0.5> (x)
}}
"""
BLOCK = """
<domain: "local", opset_import: ["" : 18]>
leaf <k: float = 3.0> (h) => (y) {
  c = Constant <value_float: float = @k> ()
  y = Mul(h, c)
}
<domain: "local", opset_import: ["" : 18, "local" : 1]>
block <scale: float = 2.0> (a) => (out) {
  h = Relu(a)
  [inner] t = local.leaf <k: float = @scale> (h)
  [again] out = local.leaf(t)
}
"""


def _text(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def _load(proto: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    graph = perfc.load(path).program.classes[0].ops
    assert graph is not None
    return graph


def _problem(proto: onnx.ModelProto, folder: Path) -> str:
    with pytest.raises(perfc.PerfcError) as caught:
        _load(proto, folder)
    return str(caught.value).removeprefix(f"{folder / 'model.onnx'}: ")


def test_nested_calls(tmp_path: Path) -> None:
    """Bodies are written in place; names of caller and body do not meet."""
    graph = _load(_text(MAIN + BLOCK), tmp_path)

    assert ["relu", "constant", "mul", "constant", "mul"] == [n.op for n in graph]
    assert [0.5, 3.0] == [n.attributes["value"] for n in graph if n.op == "constant"]
    assert ["outer/h", "outer/t", "y"] == [
        v.name for n in graph if n.op != "constant" for v in n.results
    ]


def test_a_call_is_the_module_of_its_nodes(tmp_path: Path) -> None:
    """What the body's nodes do not say of themselves, the call says."""
    graph = _load(_text(MAIN + BLOCK), tmp_path)

    assert ["outer", "outer.inner", "outer.again"] == [
        n.location.module for n in graph if n.op != "constant"
    ]


def test_default_attributes(tmp_path: Path) -> None:
    """An attribute that the call leaves out has the function's default."""
    text = MAIN.replace(" <scale = 0.5>", "") + BLOCK
    graph = _load(_text(text), tmp_path)

    assert [2.0, 3.0] == [n.attributes["value"] for n in graph if n.op == "constant"]


def test_attribute_without_default_is_left_out(tmp_path: Path) -> None:
    """A reference to what nobody sets is as if the attribute were not there."""
    function = onnx.parser.parse_function(
        '<domain: "local", opset_import: ["" : 18]>'
        " f <axis> (a) => (out) { out = Softmax <axis: int = @axis> (a) }"
    )
    called = [node("f", "x", "y", domain="local")]
    opsets = {"": 18, "local": 1}
    graph = _load(
        model(called, inputs=[info("x", [2, 8])], functions=[function], opsets=opsets),
        tmp_path,
    )

    assert [-1] == [n.attributes["axis"] for n in graph]


def test_overloads_are_told_apart(tmp_path: Path) -> None:
    """Domain and name alone do not make a function."""
    functions = [
        onnx.parser.parse_function(
            '<domain: "local", opset_import: ["" : 18]>'
            f" f (a) => (out) {{ out = {op}(a) }}"
        )
        for op in ("Relu", "Tanh")
    ]
    functions[0].overload, functions[1].overload = "one", "two"
    calls = [node("f", "x", "h", domain="local"), node("f", "h", "y", domain="local")]
    calls[0].overload, calls[1].overload = "two", "one"
    opsets = {"": 18, "local": 1}
    inputs = [info("x", [2, 8])]
    proto = model(calls, inputs=inputs, functions=functions, opsets=opsets)

    assert ["tanh", "relu"] == [n.op for n in _load(proto, tmp_path)]


def test_body_reads_its_own_opset(tmp_path: Path) -> None:
    """Axes of `Unsqueeze` are an attribute in opset 11, in the same file or not."""
    function = onnx.parser.parse_function(
        '<domain: "local", opset_import: ["" : 11]>'
        " f (a) => (out) { out = Unsqueeze <axes: ints = [0]> (a) }"
    )
    proto = model(
        [node("f", "x", "y", domain="local")],
        inputs=[info("x", [2, 8])],
        outputs=[info("y", [1, 2, 8])],
        functions=[function],
        opsets={"": 18, "local": 1},
    )

    assert ["unsqueeze"] == [n.op for n in _load(proto, tmp_path)]


def test_output_that_is_an_input(tmp_path: Path) -> None:
    """A body that returns what it is given leaves nothing."""
    function = onnx.parser.parse_function(
        '<domain: "local", opset_import: ["" : 18]> f (a) => (a) { b = Relu(a) }'
    )
    proto = model(
        [node("f", "x", "h", domain="local"), node("Tanh", "h", "y")],
        inputs=[info("x", [2, 8])],
        functions=[function],
        opsets={"": 18, "local": 1},
    )

    assert ["tanh"] == [n.op for n in _load(proto, tmp_path)]


CALL = f"{HEAD} main (float[2,8] x) => (float[2,8] y) {{ y = local.f(x) }}"
_FUNCTION = '<domain: "local", opset_import: ["" : 18, "local" : 1]>'


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        (
            f"{_FUNCTION} f (a) => (b) {{ b = local.f(a) }}",
            "function local::f calls itself: local::f -> local::f",
        ),
        (
            (
                f"{_FUNCTION} f (a) => (b) {{ b = local.g(a) }}"
                f"{_FUNCTION} g (a) => (b) {{ b = local.f(a) }}"
            ),
            "function local::f calls itself: local::f -> local::g -> local::f",
        ),
        (
            f"{_FUNCTION} f (a) => (b) {{ b = Relu(a) }}" * 2,
            "function local::f is defined twice",
        ),
        (
            f"{_FUNCTION} f () => (b) {{ b = Constant <value_int = 1> () }}",
            "f '' has 1 inputs and 1 outputs; function local::f has 0 and 1",
        ),
        (
            f"{_FUNCTION} f (a) => (c) {{ b = Relu(a) }}",
            "'c' is read by an output of function 'f', but nothing defines it",
        ),
        (
            f"{_FUNCTION.replace('18', '7')} f (a) => (b) {{ b = Clip(a) }}",
            (
                "function local::f is of opset 7 of the default domain, and the bodies "
                "of functions cannot be converted; export the model again with "
                "opset_version 11 or later"
            ),
        ),
    ],
)
def test_bad_functions(functions: str, problem: str, tmp_path: Path) -> None:
    """A function that cannot be inlined is named."""
    assert problem == _problem(_text(CALL + functions), tmp_path)


def test_calls_that_grow_without_limit(tmp_path: Path) -> None:
    """Thirty functions that call the next one twice are refused, and soon."""
    functions = "".join(
        f"{_FUNCTION} f{k} (a) => (b) {{ t = local.f{k + 1}(a) b = local.f{k + 1}(t) }}"
        for k in range(30)
    )
    functions += f"{_FUNCTION} f30 (a) => (b) {{ b = Relu(a) }}"
    text = CALL.replace("local.f(", "local.f0(") + functions

    found = _problem(_text(text), tmp_path)
    assert found.startswith("its functions inlined: 1,073,741,824 nodes of a graph")


def test_calls_too_deep(tmp_path: Path) -> None:
    """A hundred functions deep is enough, in whichever order they are met."""
    functions = "".join(
        f"{_FUNCTION} f{k} (a) => (b) {{ b = local.f{k + 1}(a) }}" for k in range(300)
    )
    text = CALL.replace("local.f(", "local.f0(") + functions
    calls = "".join(f"t{k} = local.f{k}(x) " for k in reversed(range(300)))
    leaf_first = text.replace("y = local", f"{calls} y = local")
    problem = "functions call each other more than 100 deep"

    assert problem == _problem(_text(text), tmp_path)
    assert problem == _problem(_text(leaf_first), tmp_path)


def test_onnx_definition_is_the_last_resort(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An op that perfc lacks, but ONNX defines by ops that it has, is not unknown."""
    path = tmp_path / "model.onnx"
    proto = model([node("MeanVarianceNormalization", "x", "y", axes=[1])])
    path.write_bytes(proto.SerializeToString())
    code = main(
        ["analyze", str(path), "--target", "a100", "--batch", "4", "--strict", "-q"]
    )

    assert (0, "") == (code, capsys.readouterr().err)


def test_definition_that_asks_for_shapes_is_not_used(tmp_path: Path) -> None:
    """What is written for an interpreter is one op rather than an error."""
    proto = model(
        [node("AffineGrid", "theta size", "y")],
        inputs=[info("theta", [2, 2, 3]), info("size", [4], onnx.TensorProto.INT64)],
        outputs=[info("y", [2, 5, 6, 2])],
        opsets={"": 20},
    )

    assert 1 == len(_load(proto, tmp_path))


@pytest.mark.parametrize(
    ("proto", "shape"),
    [
        (node("SpaceToDepth", "x", "y", blocksize=2**62), (2, 3, 2**40, 2**40)),
        (node("SequenceMap", "x", "y"), (2,)),
        (node("Nothing", "x", "y"), (2,)),
        (node("Conv", "x", "y"), (2,)),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)
def test_definition_that_onnx_cannot_write(
    proto: onnx.NodeProto, shape: tuple[int, ...]
) -> None:
    """Whatever onnx finds wrong with a node, there is no definition then."""
    type_ = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape)

    assert schema_function(proto, onnx.defs.onnx_opset_version(), [type_]) is None
