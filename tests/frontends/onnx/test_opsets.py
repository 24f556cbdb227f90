"""Which opsets and file versions are read, and what a user hears of the others."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto
from tests.frontends.onnx.onnx_models import info, model, node, weight

import perfc
from perfc.tools.cli.command_line import main

NEWEST = onnx.defs.onnx_opset_version()
RELU = node("Relu", "x", "y")


def _write(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
@pytest.mark.parametrize("opset", range(11, NEWEST + 1))
def test_reads_every_opset(opset: int, domain: str, tmp_path: Path) -> None:
    """From 11 to the newest that the installed onnx knows."""
    path = _write(tmp_path, model([RELU], opsets={domain: opset}))

    assert 4 == perfc.load(path, batch=4).batch


_CONVERT = "export it again with opset_version 11 or later"


@pytest.mark.parametrize(
    ("opsets", "problem"),
    [
        (
            {"": -1},
            (
                "the model imports opset -1 of the default domain; supported are 1 to "
                f"{NEWEST}; {_CONVERT}"
            ),
        ),
        (
            {"": NEWEST + 1},
            (
                f"the model imports opset {NEWEST + 1} of the default domain; "
                f"supported are 1 to {NEWEST}; install a newer onnx, or export the "
                "model with an older opset_version"
            ),
        ),
        (
            {},
            (
                "the model imports no opset of the default domain; expected opset 11 "
                f"or later; {_CONVERT}"
            ),
        ),
        (
            {"com.example": 3},
            (
                "the model imports no opset of the default domain; expected opset 11 "
                f"or later; {_CONVERT}"
            ),
        ),
        (
            {"": 18, "ai.onnx": 17},
            "the default domain is imported in opset 18 and in opset 17; expected one",
        ),
        (
            {"": 18, "ai.onnx": 18, "com.example": 1},
            "",
        ),
    ],
)
def test_refuses_other_opsets(
    opsets: Mapping[str, int],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line says what was found, what is supported and what to do; exit 1."""
    path = _write(tmp_path, model([RELU], opsets=opsets))
    code = main(["analyze", str(path), "--target", "a100", "--batch", "4"])
    captured = capsys.readouterr()

    assert (1 if problem else 0) == code
    assert (f"perfc: error: {path}: {problem}\n" if problem else "") == captured.err


def test_a_model_without_default_ops_needs_no_opset(tmp_path: Path) -> None:
    """A tree ensemble alone imports its own domain alone."""
    nodes = [node("Scaler", "x", "y", domain="ai.onnx.ml")]
    path = _write(tmp_path, model(nodes, opsets={"ai.onnx.ml": 3}))

    assert 4 == perfc.load(path, batch=4).batch


def test_refuses_a_newer_file_format(tmp_path: Path) -> None:
    """A file of a later ONNX IR version may hold what the protobuf cannot decode."""
    proto = model([RELU])
    proto.ir_version = onnx.IR_VERSION + 1
    path = _write(tmp_path, proto)
    with pytest.raises(perfc.PerfcError) as caught:
        perfc.load(path)

    assert (
        f"{path}: the file has ONNX IR version {onnx.IR_VERSION + 1}, the installed "
        f"onnx knows 1 to {onnx.IR_VERSION}; install a newer onnx, or export with an "
        "older one"
    ) == str(caught.value)


def test_reads_old_file_formats(tmp_path: Path) -> None:
    """IR version 3 lists every initializer among the inputs."""
    proto = model(
        [node("Add", "x b", "y")],
        inputs=[info("x", ["batch", 8]), info("b", [8])],
        initializers=[onnx.helper.make_tensor("b", 1, [8], [0.5] * 8)],
        opsets={"": 11},
    )
    proto.ir_version = 3
    graph = perfc.load(_write(tmp_path, proto), batch=4).program.classes[0].ops

    assert graph is not None
    assert ["x"] == [value.name for value in graph.inputs]
    assert ["b"] == [value.name for value in graph.parameters]


def _remarks(path: Path) -> list[str]:
    program = perfc.load(path, batch=2).program
    return [d.message for d in program.diagnostics if d.code == "opset-converted"]


_IMAGE = info("x", ["batch", 3, 4, 4])
_OLD: Mapping[str, tuple[int, onnx.NodeProto, Sequence[int | str], str]] = {
    "slice": (
        9,
        node("Slice", "x", "y", starts=[1], ends=[3], axes=[2]),
        (2, 4),
        "slice",
    ),
    "pad": (10, node("Pad", "x", "y", pads=[0, 0, 1, 1] * 2), (6, 6), "pad"),
    "clip": (7, node("Clip", "x", "y", min=0.0, max=6.0), (4, 4), "clip"),
    "top-k": (9, node("TopK", "x", "y i", k=3), (4, 3), "topk"),
    "upsample": (
        *(7, node("Upsample", "x", "y", scales=[1.0, 1.0, 2.0, 2.0])),
        *((8, 8), "resize"),
    ),
    "resize": (10, node("Resize", "x s", "y"), (8, 8), "resize"),
    "scaled upsample": (9, node("Upsample", "x s", "y"), (8, 8), "resize"),
    "unchanged": (7, node("Relu", "x", "y"), (4, 4), "relu"),
}


@pytest.mark.parametrize("name", _OLD)
def test_converts_older_opsets(name: str, tmp_path: Path) -> None:
    """Ops of opsets 7 to 10 are those that replaced them, of any batch; a remark."""
    opset, old, image, op = _OLD[name]
    scales = onnx.helper.make_tensor("s", TensorProto.FLOAT, [4], [1.0, 1.0, 2.0, 2.0])
    proto = model(
        [old],
        inputs=[_IMAGE],
        outputs=[info("y", ["batch", 3, None, None])],
        initializers=[scales] if "s" in old.input else [],
        opsets={"": opset},
    )
    path = _write(tmp_path, proto)
    graph = perfc.load(path, batch=2).program.classes[0].ops

    assert graph is not None
    assert [op] == [node.op for node in graph if node.op != "constant"]
    (type_,) = {value.type for value in graph.outputs}
    assert type_ is not None
    assert tuple(image) == type_.shape[2:]
    how = "converted to opset 11 by onnx.version_converter"
    if name == "unchanged":
        how = "read as opset 11, in which its ops are the same"
    assert [f"the file is of opset {opset}: {how}"] == _remarks(path)


def test_converts_neither_weights_nor_foreign_ops(tmp_path: Path) -> None:
    """The rest of an old file is as it was: weights, domains not declared, plugins."""
    proto = model(
        [
            node("Conv", "x w", "a"),
            node("BatchedNMS_TRT", "a", "b"),
            node("Mine", "b", "c", domain="com.example"),
            node("Clip", "c", "y", min=0.0),
        ],
        inputs=[_IMAGE],
        initializers=[weight("w", 999, 3, 3, 3)],
        opsets={"": 9},
    )
    graph = perfc.load(_write(tmp_path, proto), batch=2).program.classes[0].ops

    assert graph is not None
    assert [("w", (999, 3, 3, 3))] == [
        (value.name, value.type.shape) for value in graph.parameters if value.type
    ]
    unknown = [str(n.attributes["op"]) for n in graph if n.op == "unknown"]
    assert ["BatchedNMS_TRT", "com.example::Mine"] == unknown


def test_says_what_cannot_be_converted(tmp_path: Path) -> None:
    """One line names the op that onnx does not convert, and what to do."""
    proto = model([node("Split", "x", "y z", axis=1)], opsets={"": 1})
    path = _write(tmp_path, proto)
    with pytest.raises(perfc.PerfcError) as caught:
        perfc.load(path, batch=2)

    assert (
        f"{path}: the model imports opset 1 of the default domain, which onnx cannot "
        "convert to opset 11 (No Adapter From Version $1 for Split); export it again "
        "with opset_version 11 or later"
    ) == str(caught.value)


def test_functions_of_older_opsets(tmp_path: Path) -> None:
    """The body of a function is read where its ops have not changed since."""
    body = onnx.helper.make_function(
        *("here", "F", ["a"], ["b"], [node("Relu", "a", "b")]),
        [onnx.helper.make_opsetid("", 10)],
    )
    calls = [node("F", "x", "y", domain="here")]
    proto = model(calls, functions=[body], opsets={"": 18, "here": 1})

    assert 2 == perfc.load(_write(tmp_path, proto), batch=2).batch


def test_slopes_of_channels(tmp_path: Path) -> None:
    """Before opset 7 PRelu has a list of slopes, one for each channel."""
    slopes = onnx.helper.make_tensor("s", TensorProto.FLOAT, [3], [0.1, 0.2, 0.3])
    proto = model(
        [node("PRelu", "x s", "y")],
        inputs=[info("x", ["batch", 3, 4, 5])],
        initializers=[slopes],
        opsets={"": 6},
    )

    assert 2 == perfc.load(_write(tmp_path, proto), batch=2).batch


_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def _damaged(proto: onnx.ModelProto, numbers: random.Random) -> None:
    """Change a node, or an input, as no exporter would."""
    called = numbers.choice(proto.graph.node)
    match numbers.randrange(6):
        case 0:
            called.op_type = numbers.choice(
                ["Foo", "Upsample", "Slice", "Gemm", "Scan"]
            )
        case 1:
            called.input.append(numbers.choice(["", "nothing", *called.output]))
        case 2:
            called.input[:] = called.input[1:]
        case 3:
            called.output.append(numbers.choice(["", *called.input]))
        case 4:
            proto.graph.input[0].type.Clear()
        case _:
            del called.attribute[:]


def test_damaged_old_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What onnx's converter trips over ends in one line, as what perfc does."""
    numbers = random.Random(1)
    folders = ("pytorch-operator", "pytorch-converted")
    paths = [
        path for name in folders for path in sorted((_DATA / name).rglob("*.onnx"))
    ]
    for _ in range(60):
        proto = onnx.load(numbers.choice(paths))
        _damaged(proto, numbers)
        code = main(["analyze", str(_write(tmp_path, proto)), "--target", "a100"])
        printed = capsys.readouterr().err

        assert (code, code) == (int(bool(printed)), len(printed.splitlines()))
