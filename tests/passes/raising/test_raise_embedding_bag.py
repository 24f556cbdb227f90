"""Only what is an embedding bag is raised to one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from perfc.frontends.onnx import OnnxFrontend
from perfc.ir import Graph
from perfc.passes import PassManager
from perfc.passes.instruments import VerifyEach
from perfc.passes.pipeline_spec import parse_pipeline

FIXTURES = Path(__file__).parents[2] / "fixtures" / "onnx"
Edit = Callable[[onnx.GraphProto], None]


def _body(graph: onnx.GraphProto) -> onnx.GraphProto:
    (loop,) = [node for node in graph.node if node.op_type == "Loop"]
    return next(a.g for a in loop.attribute if a.name == "body")


def _last(graph: onnx.GraphProto, op: str) -> onnx.NodeProto:
    return [node for node in graph.node if node.op_type == op][-1]


def _insert_after(graph: onnx.GraphProto, op: str, new_op: str, *more: str) -> None:
    """Put one more op after the last *op*, in the place of its result."""
    node = _last(graph, op)
    name = node.output[0]
    node.output[0] = f"{name}_before"
    nodes = list(graph.node)
    at = next(i for i, other in enumerate(nodes) if other is node or other == node)
    extra = helper.make_node(new_op, [node.output[0], *more], [name])
    del graph.node[:]
    graph.node.extend([*nodes[: at + 1], extra, *nodes[at + 1 :]])


def _relu_on_rows(graph: onnx.GraphProto) -> None:
    _insert_after(_body(graph), "Gather", "Relu")


def _relu_on_result(graph: onnx.GraphProto) -> None:
    _insert_after(_body(graph), "ReduceMean", "Relu")


def _rows_squared(graph: onnx.GraphProto) -> None:
    rows = _last(_body(graph), "Gather").output[0]
    _insert_after(_body(graph), "Gather", "Mul", f"{rows}_before")


def _result_doubled(graph: onnx.GraphProto) -> None:
    pooled = _last(_body(graph), "ReduceMean").output[0]
    _insert_after(_body(graph), "ReduceMean", "Add", f"{pooled}_before")


def _other_axis(graph: onnx.GraphProto) -> None:
    node = _last(_body(graph), "ReduceMean")
    next(a for a in node.attribute if a.name == "axes").ints[:] = [1]


def _other_reduction(graph: onnx.GraphProto) -> None:
    _last(_body(graph), "ReduceMean").op_type = "ReduceProd"


def _columns(graph: onnx.GraphProto) -> None:
    node = _last(_body(graph), "Gather")
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("axis", 1))


def _bounds_from_two(graph: onnx.GraphProto) -> None:
    start = next(n for n in graph.node if n.output[0] == "/table/Constant_5_output_0")
    value = onnx.numpy_helper.to_array(start.attribute[0].t) + 1
    start.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(value))


EDITS: list[Edit] = [
    *(_relu_on_rows, _relu_on_result, _rows_squared, _result_doubled),
    *(_other_axis, _other_reduction, _columns, _bounds_from_two),
]


def _name(edit: Edit) -> str:
    return edit.__name__


@pytest.mark.parametrize("edit", EDITS, ids=_name)
def test_leaves_other_loops_alone(edit: Edit, tmp_path: Path) -> None:
    """A loop that does anything else with the rows stays a loop."""
    path = FIXTURES / "bag_legacy_mean_offsets.onnx"
    model = onnx.load(path, load_external_data=False)
    edit(model.graph)
    ops = _ops(_raised(model, tmp_path))

    assert ["loop"] == [op for op in ops if op in {"loop", "embedding_bag"}]


def test_scaled_rows_are_no_bag(tmp_path: Path) -> None:
    """A factor of twos is not taken for the ones that mean no weights."""
    model = _with_factor(2.0)

    assert "embedding_bag" not in _ops(_raised(model, tmp_path))


def test_rows_times_one_are_a_bag(tmp_path: Path) -> None:
    """The same factor of ones is."""
    model = _with_factor(1.0)

    assert "embedding_bag" in _ops(_raised(model, tmp_path))


def test_offsets_of_matrix_indices_are_no_2d_bag(tmp_path: Path) -> None:
    """Indices with two dimensions and bounds from elsewhere stay a loop."""
    path = FIXTURES / "bag_legacy_sum_offsets.onnx"
    model = onnx.load(path, load_external_data=False)
    indices = model.graph.input[0]
    flat, names = indices.name + "_flat", ["batch", "lookups"]
    for graph in (model.graph, _body(model.graph)):
        for node in graph.node:
            node.input[:] = [flat if n == indices.name else n for n in node.input]
    shape = onnx.numpy_helper.from_array(np.array([-1]), "flat_shape")
    model.graph.initializer.append(shape)
    model.graph.node.insert(
        0, helper.make_node("Reshape", [indices.name, "flat_shape"], [flat])
    )
    indices.CopyFrom(
        helper.make_tensor_value_info(indices.name, onnx.TensorProto.INT64, names)
    )

    assert "embedding_bag" not in _ops(_raised(model, tmp_path))


def test_says_that_it_does_not_know_an_exported_bag(tmp_path: Path) -> None:
    """A loop that its exporter calls an embedding bag is warned of."""
    path = FIXTURES / "bag_dynamo_sum_offsets.onnx"
    model = onnx.load(path, load_external_data=False)
    name = _last(model.graph, "Loop").output[0]
    join = _last(model.graph, "ConcatFromSequence")
    join.input[0] = name
    next(a for a in join.attribute if a.name == "axis").i = 1
    program = OnnxFrontend().load(_written(model, tmp_path))
    analysis = PassManager(parse_pipeline("raise-embedding-bag")).run(program)

    assert ["bag-not-raised"] == [d.code for d in analysis.diagnostics]


def _with_factor(value: float) -> onnx.ModelProto:
    path = FIXTURES / "bag_dynamo_sum_2d_static.onnx"
    model = onnx.load(path, load_external_data=False)
    (factor,) = [t for t in model.graph.initializer if list(t.dims) == [12, 1]]
    factor.CopyFrom(
        helper.make_tensor(factor.name, onnx.TensorProto.FLOAT, [12, 1], [value] * 12)
    )
    for node in model.graph.node:
        del node.metadata_props[:]
    return model


def _raised(model: onnx.ModelProto, folder: Path) -> Graph:
    program = OnnxFrontend().load(_written(model, folder))
    pipeline = parse_pipeline("raise-embedding-bag,shape-inference,fold-shapes")
    PassManager(pipeline, (VerifyEach(),)).run(program)
    graph = program.classes[0].ops
    assert graph is not None
    return graph


def _written(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "edited.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _ops(graph: Graph) -> list[str]:
    return [node.op for node in graph]
