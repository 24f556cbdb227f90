"""Files of many exporters: declared types that do not hold, or are guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.frontends.onnx.onnx_models import constant, info, model, node, weight

import perfc
from perfc.tools.cli.command_line import main

TORCHREC = Path(__file__).parents[2] / "fixtures" / "torchrec"


def _report(
    source: onnx.ModelProto | Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
) -> dict[str, Any]:
    path = source if isinstance(source, Path) else folder / "model.onnx"
    if isinstance(source, onnx.ModelProto):
        path.write_bytes(source.SerializeToString())
    command = ["analyze", str(path), "--target", "a100", "--format", "json"]
    code = main([*command, *arguments])
    captured = capsys.readouterr()

    assert (0, "") == (code, captured.err)
    report: dict[str, Any] = json.loads(captured.out)
    return report


def _messages(report: dict[str, Any], code: str) -> list[str]:
    return [d["message"] for d in report["diagnostics"] if d["code"] == code]


def test_inferred_shapes_beat_declared_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong sizes and ranks are one warning, and cost what the ops make."""
    nodes = [node("Relu", "x", "a")]
    nodes += [node("Relu", a, b) for a, b in zip("abcd", "bcdy", strict=True)]
    wrong = model(
        nodes,
        outputs=[info("y", [1, 2, 3])],
        declared=[info(name, ["batch", 9]) for name in "abc"],
    )
    right = model(nodes)
    found = _report(wrong, tmp_path, capsys, "--batch", "4")
    expected = _report(right, tmp_path, capsys, "--batch", "4")

    (message,) = _messages(found, "declared-type")
    assert (
        "the model declares shapes that its ops do not make: "
        "%a is declared f32[batch,9], inferred f32[batch,8]; "
        "%b is declared f32[batch,9], inferred f32[batch,8]; "
        "%c is declared f32[batch,9], inferred f32[batch,8]; … (4 in all); "
        "the inferred ones are used"
    ) == message
    assert [] == _messages(expected, "declared-type")
    assert expected["summary"]["time_us"] == found["summary"]["time_us"]


def test_declared_shapes_do_not_matter_in_branches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shape that holds for one branch alone is not said of what is gone."""
    then, other = (
        onnx.helper.make_graph([node(op, "x", out)], op, [], [info(out, [1, 2, 3])])
        for op, out in (("Relu", "t"), ("Exp", "e"))
    )
    proto = model(
        [
            node("If", "yes", "h", then_branch=then, else_branch=other),
            node("Relu", "h", "y"),
        ],
        initializers=[onnx.helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [1])],
    )
    (message,) = _messages(
        _report(proto, tmp_path, capsys, "--batch", "4"), "declared-type"
    )

    assert "%t" in message
    assert "%e" not in message


def test_ops_that_do_not_fit_a_guess_cost_their_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are unknown, counted and reported; the rest is analysed."""
    proto = model(
        [
            node("Mystery", "x", "h"),
            node("MatMul", "h w", "m"),
            node("MatMul", "x v", "y"),
        ],
        initializers=[weight("w", 9, 4), weight("v", 8, 4)],
        outputs=[onnx.ValueInfoProto(name="m"), info("y", ["batch", 4])],
    )
    report = _report(proto, tmp_path, capsys, "--batch", "64")

    assert {"Mystery": 1, "matmul": 1} == report["coverage"]["unknown_ops"]
    (message,) = _messages(report, "type-misfit")
    assert (
        "ops that do not fit types that were assumed: %m = matmul: inner dimensions "
        "of f32[batch,8] x f32[9,4] differ: 8 and 9; each is costed by its bytes; "
        "declare the types in the model (an ONNX value_info)"
    ) == message
    assert 2 * 64 * 8 * 4 == report["summary"]["flops"]


def test_shape_arithmetic_on_a_guess(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes that follow from a guess are numbers; a declared name is none."""
    proto = model(
        [
            node("Mystery", "x", "h"),
            node("Shape", "h", "s"),
            node("Expand", "one s", "e"),
            node("Add", "h e", "y"),
        ],
        initializers=[weight("one", 1)],
        outputs=[info("y", ["batch", "columns"])],
    )
    report = _report(proto, tmp_path, capsys, "--batch", "64")

    assert {"Mystery": 1} == report["coverage"]["unknown_ops"]


def test_a_declared_type_beats_the_elements_of_a_guess(tmp_path: Path) -> None:
    """A shape of three numbers is not folded to those of a guessed matrix."""
    proto = model(
        [node("Mystery", "x", "h"), node("Shape", "h", "s")],
        outputs=[info("s", [3], onnx.TensorProto.INT64)],
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    graph = perfc.load(path, batch=4).program.classes[0].ops

    assert graph is not None
    assert ["unknown", "shape"] == [node.op for node in graph]


def test_minus_one_is_an_open_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TensorFlow's and Paddle's exporters write it, of inputs and of values."""
    proto = model(
        [node("Relu", "x", "h"), node("Relu", "h", "y")],
        inputs=[info("x", [-1, 3, "?"])],
        declared=[info("h", [-1, 3, -1])],
        outputs=[info("y", [-1, 3, -1])],
    )
    report = _report(proto, tmp_path, capsys, "--batch", "4", "--dim", "x_dim_2=5")

    assert [] == _messages(report, "declared-type")

    path = tmp_path / "model.onnx"
    assert 1 == main(["analyze", str(path), "--target", "a100"])
    assert (
        "perfc: error: dimensions without a number: x_dim_0 (the batch), x_dim_2; "
        "add --batch N --dim x_dim_2=N\n"
    ) == capsys.readouterr().err


@pytest.mark.parametrize("end", [10**9, 2**31 - 1, 2**63 - 1])
def test_slices_to_the_end(end: int, tmp_path: Path) -> None:
    """However an exporter writes the end, a slice is no larger than its operand."""
    proto = model(
        [node("Slice", "x zero end zero", "y")],
        initializers=[constant("zero", [0]), constant("end", [end])],
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    graph = perfc.load(path, batch=4).program.classes[0].ops

    assert graph is not None
    assert ["f32[batch,8]"] == [str(value.type) for value in graph.outputs]


@pytest.mark.parametrize(
    ("exporter", "arguments", "lookups"),
    [("legacy", (), 8), ("dynamo", (), 4), ("dynamo", ("--pooling", "2"), 8)],
)
def test_torchrec(
    exporter: str,
    arguments: tuple[str, ...],
    lookups: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its bags are raised, and nothing but the pooling is asked for."""
    path = TORCHREC / f"dlrm_{exporter}.onnx"
    report = _report(path, tmp_path, capsys, *arguments)
    pooling = int(arguments[1]) if arguments else None
    program = perfc.load(path, pooling=pooling).program
    graph = program.classes[0].ops
    assert graph is not None
    bags = [node for node in graph if node.op == "embedding_bag"]
    indices = [bag.operands[1].type for bag in bags]

    assert {} == report["coverage"]["unknown_ops"]
    assert [f"i64[{lookups}]"] * 3 == [
        str(type_.bind(program.bindings)) for type_ in indices if type_ is not None
    ]
    assumed = exporter == "dynamo" and not arguments
    assert assumed == bool(_messages(report, "pooling-assumed"))
    assert [] == [node for node in graph if node.op in ("loop", "item")]
