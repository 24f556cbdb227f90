"""Initializers in every form: only their types are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.frontends.onnx.onnx_models import info, model, node, weight

import perfc
from perfc.ir import Graph

EXTERNAL = {"location": "no/such/folder/part-3.bin", "offset": "4096", "length": "256"}


def _load(proto: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    graph = perfc.load(path, batch=4).program.classes[0].ops
    assert graph is not None
    return graph


def _parameters(graph: Graph) -> dict[str, str]:
    return {value.name: str(value.type) for value in graph.parameters}


def test_external_data_are_not_looked_for(tmp_path: Path) -> None:
    """Several files, offsets and folders that do not exist: only types are used."""
    weights = [weight("w", 8, 8), weight("v", 8)]
    for number, tensor in enumerate(weights):
        places = {**EXTERNAL, "location": f"gone/{number}.bin"}
        for key, value in places.items():
            tensor.external_data.add(key=key, value=value)
    nodes = [node("MatMul", "x w", "h"), node("Add", "h v", "y")]
    graph = _load(model(nodes, initializers=weights), tmp_path)

    assert {"w": "f32[8,8]", "v": "f32[8]"} == _parameters(graph)
    assert [tmp_path / "model.onnx"] == list(tmp_path.iterdir())


def test_sparse_initializer(tmp_path: Path) -> None:
    """It is read as the dense tensor that the ops see."""
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("w_indices", TensorProto.INT64, [2], [3, 5])
    proto = model([node("MatMul", "x w", "y")])
    sparse = helper.make_sparse_tensor(values, indices, [8, 8])
    proto.graph.sparse_initializer.append(sparse)

    assert {"w": "f32[8,8]"} == _parameters(_load(proto, tmp_path))


def test_sparse_constant(tmp_path: Path) -> None:
    """So is the sparse value of a `Constant` node."""
    values = helper.make_tensor("", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("", TensorProto.INT64, [1], [3])
    sparse = helper.make_sparse_tensor(values, indices, [8, 8])
    made = node("Constant", "", "w", sparse_value=sparse)
    graph = _load(model([made, node("MatMul", "x w", "y")]), tmp_path)

    assert ["constant", "matmul"] == [n.op for n in graph]
    assert (8, 8) == next(iter(graph)).attributes["shape"]


@pytest.mark.parametrize(
    ("dtype", "printed"),
    [
        (TensorProto.FLOAT16, "f16"),
        (TensorProto.BFLOAT16, "bf16"),
        (TensorProto.DOUBLE, "f64"),
        (TensorProto.FLOAT8E4M3FN, "f8e4m3"),
        (TensorProto.FLOAT8E5M2, "f8e5m2"),
    ],
)
@pytest.mark.parametrize("raw", [True, False])
def test_element_types(dtype: int, printed: str, tmp_path: Path, *, raw: bool) -> None:
    """Weights of every float type, written either way."""
    width = helper.tensor_dtype_to_np_dtype(dtype).itemsize
    data = bytes(64 * width) if raw else np.zeros(64)
    tensor = helper.make_tensor("w", dtype, [8, 8], data, raw=raw)
    proto = model(
        [node("MatMul", "x w", "y")],
        inputs=[info("x", ["batch", 8], dtype)],
        outputs=[info("y", ["batch", 8], dtype)],
        initializers=[tensor],
    )

    assert {"w": f"{printed}[8,8]"} == _parameters(_load(proto, tmp_path))


@pytest.mark.parametrize("shape", [(), (0, 8)])
def test_scalars_and_empty_tensors(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Of no dimension or of no element."""
    numbers = np.ones(shape, np.float32)
    tensor = onnx.numpy_helper.from_array(numbers, "w")
    op = node("Add", "x w", "y") if not shape else node("Concat", "x w", "y", axis=0)
    inputs = [info("x", [4, 8])]
    outputs = [info("y", [4, 8])]
    proto = model([op], inputs=inputs, outputs=outputs, initializers=[tensor])
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())

    report = perfc.analyze(perfc.load(path), "a100")
    assert report.time_us > 0
