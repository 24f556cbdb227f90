"""Every value of an imported model gets a type, and the right one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.frontends.evaluate import bindings_of
from tests.frontends.onnx.onnx_models import constant, info, model, node
from tests.frontends.onnx.onnx_values import fill, random_inputs, run_reference

import perfc
from perfc.frontends.onnx import OnnxFrontend
from perfc.ir import Graph
from perfc.ir.dims import Expr

ROOT = Path(__file__).parents[3]
FIXTURES = sorted((ROOT / "tests" / "fixtures" / "onnx").glob("*.onnx"))
SHARED = ROOT.parent / "shared" / "data" / "models"
TABLES = {"dlrm_mlperf": 26, "dlrm_small": 4, "bag": 1, "bert": 0, "resnet50": 0}


def _stem(path: Path) -> str:
    """Name a test after its file."""
    return path.stem


every_fixture = pytest.mark.parametrize("path", FIXTURES, ids=_stem)
dlrms = pytest.mark.parametrize(
    "path", [path for path in FIXTURES if path.stem.startswith("dlrm")], ids=_stem
)


@every_fixture
def test_every_value_is_bound(path: Path) -> None:
    """After loading and binding no type is missing and no symbol is open."""
    loaded = _load(path)

    assert [] == _open_values(loaded)


@pytest.mark.parametrize(
    "name",
    [
        *("bert_base_dynamo", "resnet50_dynamo", "dlrm_mlperf_dynamo"),
        *("dlrm_mlperf_dynbatch_dynamo", "dlrm_mlperf_legacy"),
        *("dlrm_small_dynamo_dynbatch", "dlrm_small_legacy_op17"),
    ],
)
def test_full_size_models(name: str) -> None:
    """Models of full size: one bag per table, nothing unknown, nothing open."""
    path = SHARED / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: it is no part of the repository")
    loaded = _load(path)
    ops = [node.op for node in _graph(loaded)]
    (tables,) = [count for stem, count in TABLES.items() if name.startswith(stem)]

    assert tables == ops.count("embedding_bag")
    assert set() == set(ops) & {"unknown", "loop", "if"}
    assert [] == _open_values(loaded)


@dlrms
def test_shapes_are_those_of_onnxruntime(path: Path) -> None:
    """Each value that the file also has gets the shape and type it has there."""
    pytest.importorskip("onnxruntime", reason="the reference run needs onnxruntime")
    rng = np.random.default_rng(0)
    proto = fill(onnx.load(path, load_external_data=False), rng)
    inputs = random_inputs(proto, 6, 5, rng)
    graph = _graph(_load(path))
    names = {n for node in proto.graph.node for n in node.output}
    shared = [v for v in graph.values() if v.name in names]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=v.name) for v in shared)
    found = run_reference(proto, inputs)
    bindings = bindings_of(graph, inputs)
    shapes = {v.name: v.type.bind(bindings).shape for v in shared if v.type is not None}

    assert {name: array.shape for name, array in found.items()} == shapes
    assert len(shared) > 15


@dlrms
def test_shapes_are_those_of_onnx(path: Path) -> None:
    """Where ONNX's own shape inference knows a number, perfc has the same."""
    proto = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    graph = _graph(_load(path))
    known = {
        i.name: _numbers(i) for i in (*proto.graph.value_info, *proto.graph.output)
    }
    compared = 0
    for value in graph.values():
        if value.type is None or value.name not in known:
            continue
        for axis, number in known[value.name].items():
            dim = value.type.shape[axis]
            assert number == dim or isinstance(dim, Expr), f"{value} axis {axis}"
            compared += 1
    assert compared >= 10


def test_names_open_dimensions(tmp_path: Path) -> None:
    """Dimensions without a name are named after the input; the first is the batch."""
    proto = model(
        [node("Relu", "x", "y")],
        inputs=[info("x", [None, 8])],
        outputs=[info("y", [None, None])],
    )
    loaded = perfc.load(_written(proto, tmp_path), batch=5)

    assert {"x_dim_0": 5} == loaded.program.bindings


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("batch", "f32[batch,8]"),
        ("2*s0 + 1", "f32[2*s0+1,8]"),
        ("batch size", 'f32["batch size",8]'),
        ("s0/2", 'f32["s0/2",8]'),
        ("?", "f32[x_dim_0,8]"),
    ],
)
def test_reads_dimension_parameters(text: str, shown: str, tmp_path: Path) -> None:
    """A dimension parameter is an expression, or any name, kept apart from others."""
    proto = model([node("Relu", "x", "y")], inputs=[info("x", [text, 8])])
    graph = OnnxFrontend().load(_written(proto, tmp_path)).classes[0].ops
    assert graph is not None

    assert shown == str(graph.inputs[0].type)


def test_trusts_the_inputs_more_than_a_stale_declaration(tmp_path: Path) -> None:
    """A fixed size declared for what follows from a symbol does not stick."""
    proto = model([node("Relu", "x", "y")], outputs=[info("y", [4, 8])])
    graph = _graph(perfc.load(_written(proto, tmp_path), batch=64))

    assert ["f32[batch,8]"] == [str(v.type) for v in graph.outputs]


def test_keeps_what_is_declared_of_data_dependent_sizes(tmp_path: Path) -> None:
    """A declared number is better than a size that depends on data."""
    proto = model(
        [node("Slice", "x s e", "h"), node("Relu", "h", "y")],
        inputs=[
            info("x", ["batch", 8]),
            *(info(name, [1], onnx.TensorProto.INT64) for name in "se"),
        ],
        declared=[info("h", [3, 8])],
        outputs=[info("y", [None, 8])],
    )
    graph = _graph(perfc.load(_written(proto, tmp_path), batch=64))

    assert ["f32[3,8]"] == [str(v.type) for v in graph.outputs]


def test_guesses_the_type_of_an_unknown_op(tmp_path: Path) -> None:
    """It is what a reader declares, else that of its first operand; with a warning."""
    proto = model(
        [
            node("Mystery", "x", "h"),
            node("Mystery", "x", "k"),
            node("Relu", "h", "y"),
            node("Relu", "k", "z"),
        ],
        outputs=[info("y", ["batch", 3]), onnx.ValueInfoProto(name="z")],
    )
    loaded = perfc.load(_written(proto, tmp_path), batch=64)
    types = {v.name: str(v.type) for v in _graph(loaded).values()}

    assert {
        "x": "f32[batch,8]",
        "h": "f32[batch,3]",
        "k": "f32[batch,8]",
        "y": "f32[batch,3]",
        "z": "f32[batch,8]",
    } == types
    assert ["type-assumed"] == [d.code for d in loaded.program.diagnostics]


def test_drops_casts_that_change_nothing(tmp_path: Path) -> None:
    """Casts to the type at hand and identities go, other casts stay."""
    proto = model(
        [
            node("Cast", "x", "a", to=onnx.TensorProto.FLOAT),
            node("Identity", "a", "b"),
            node("Cast", "b", "c", to=onnx.TensorProto.FLOAT16),
            node("Relu", "c", "y"),
        ],
        outputs=[info("y", ["batch", 8], onnx.TensorProto.FLOAT16)],
    )
    graph = _graph(perfc.load(_written(proto, tmp_path), batch=64))

    assert ["cast", "relu"] == [node.op for node in graph]


def test_folds_shape_arithmetic(tmp_path: Path) -> None:
    """A target shape computed from the shape of a value becomes a constant."""
    proto = model(
        [
            node("Shape", "x", "dims"),
            node("Gather", "dims zero", "rows"),
            node("Concat", "rows minus", "shape", axis=0),
            node("Reshape", "x shape", "h"),
            node("Relu", "h", "y"),
        ],
        initializers=[constant("zero", [0]), constant("minus", [4, -1])],
        outputs=[info("y", ["batch", 4, 2])],
    )
    graph = _graph(perfc.load(_written(proto, tmp_path), batch=64))

    assert ["constant", "reshape", "relu"] == [node.op for node in graph]
    assert "f32[batch,4,2]" == str(graph.outputs[0].type)


def _load(path: Path) -> perfc.Model:
    fixed = "static" in path.stem or not _has_symbols(path)
    return perfc.load(path) if fixed else _load_dynamic(path)


def _load_dynamic(path: Path) -> perfc.Model:
    if "bounds" in path.stem:
        return perfc.load(path, dims={"bounds": 7, "nnz": 30})
    return perfc.load(path, batch=6)


def _has_symbols(path: Path) -> bool:
    proto = onnx.load(path, load_external_data=False)
    dims = [d for i in proto.graph.input for d in i.type.tensor_type.shape.dim]
    return any(dim.dim_param for dim in dims)


def _graph(loaded: perfc.Model) -> Graph:
    graph = loaded.program.classes[0].ops
    assert graph is not None
    return graph


def _open_values(loaded: perfc.Model) -> list[str]:
    """Values without a type, or with a symbol that has no number."""
    bound = set(loaded.program.bindings)
    return [
        f"{value}: {value.type}"
        for value in _graph(loaded).values()
        if value.type is None or not value.type.symbols() <= bound
    ]


def _numbers(declared: onnx.ValueInfoProto) -> dict[int, int]:
    dims = enumerate(declared.type.tensor_type.shape.dim)
    return {axis: dim.dim_value for axis, dim in dims if dim.HasField("dim_value")}


def _written(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path
