"""ONNX files with predictions on their nodes, and node data for Model Explorer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.exporters.predictions import ONNX_FILE, at, copied, report_of

import perfc
from perfc.ir import PerfcError
from perfc.tools import Report

WEIGHTS = "weights.bin"


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """A model of two matmuls, an older prediction on it, weights beside it."""
    rng = np.random.default_rng(0)
    shapes = {"w": (64, 32), "v": (32, 16)}
    weights = [
        numpy_helper.from_array(rng.random(shape, dtype=np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="middle"),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    old = nodes[0].metadata_props.add()
    old.key, old.value = "perfc.time_us", "old"
    kept = nodes[0].metadata_props.add()
    kept.key, kept.value = "author", "somebody"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 16])],
        weights,
    )
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / "model.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(
        proto,
        path,
        save_as_external_data=True,
        location=WEIGHTS,
        size_threshold=0,
    )
    return path


def _report(path: Path) -> Report:
    return perfc.analyze(perfc.load(path), "a100")


def _facts(node: onnx.NodeProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in node.metadata_props}


def test_each_node_has_its_prediction(model_file: Path) -> None:
    """Time, kernels and bound of each op stand at its ONNX node."""
    report = _report(model_file)
    path = model_file.with_name("annotated.onnx")

    report.export("onnx", path)

    nodes = onnx.load(path, load_external_data=False).graph.node
    times_us = {n["id"]: f"{n['duration_us']:.6g}" for n in report.nodes}
    assert [times_us[name] for name in ("h", "r", "y")] == [
        _facts(node)["perfc.time_us"] for node in nodes
    ]
    for node in nodes:
        facts = _facts(node)
        assert "1" == facts["perfc.kernels"]
        assert facts["perfc.bound"] in ("compute", "memory")
        assert facts["perfc.on_critical_path"] in ("true", "false")


def test_what_else_is_in_the_file_stays(model_file: Path) -> None:
    """An older prediction is replaced, other metadata and the graph are kept."""
    path = model_file.with_name("annotated.onnx")
    _report(model_file).export("onnx", path)

    before = onnx.load(model_file, load_external_data=False)
    after = onnx.load(path, load_external_data=False)
    facts = _facts(after.graph.node[0])
    assert "somebody" == facts["author"]
    assert "old" != facts["perfc.time_us"]
    for model in (before, after):
        del model.metadata_props[:]
        for node in model.graph.node:
            del node.metadata_props[:]
    assert before == after


def test_the_copy_is_a_model(model_file: Path) -> None:
    """It passes ONNX's checker, finds its weights, and is read by perfc again."""
    path = model_file.with_name("annotated.onnx")
    report = _report(model_file)
    report.export("onnx", path)

    onnx.checker.check_model(path, full_check=True)
    assert report.time_us == _report(path).time_us


def test_facts_of_the_model(model_file: Path) -> None:
    """The model says what was predicted, for which target."""
    path = model_file.with_name("annotated.onnx")
    report = _report(model_file)
    report.export("onnx", path)

    props = onnx.load(path, load_external_data=False).metadata_props
    facts = {entry.key: entry.value for entry in props}
    assert "a100-sxm-80g" == facts["perfc.target"]
    assert f"{report.time_us:.6g}" == facts["perfc.time_us"]


def test_weights_below_the_copy(model_file: Path) -> None:
    """From a folder above, the copy refers to the weights where they are."""
    path = model_file.parents[1] / "annotated.onnx"

    _report(model_file).export("onnx", path)

    weights = onnx.load(path).graph.initializer  # reads them
    assert {f"in/{WEIGHTS}"} == {
        entry.value
        for tensor in onnx.load(path, load_external_data=False).graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    original = onnx.load(model_file).graph.initializer
    for found, expected in zip(weights, original, strict=True):
        np.testing.assert_array_equal(
            numpy_helper.to_array(found), numpy_helper.to_array(expected)
        )


def test_weights_elsewhere(model_file: Path, tmp_path: Path) -> None:
    """Where ONNX would not find the weights nothing is written."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()

    with pytest.raises(PerfcError, match=r"finds weights only below its own folder"):
        _report(model_file).export("onnx", folder / "annotated.onnx")

    assert [] == list(folder.iterdir())


def test_the_model_is_not_overwritten(model_file: Path) -> None:
    """The user's own file stays as it is."""
    before = model_file.read_bytes()

    with pytest.raises(PerfcError, match="is the model itself; give the copy another"):
        _report(model_file).export("onnx", model_file)

    assert before == model_file.read_bytes()


def test_a_file_that_has_changed(model_file: Path) -> None:
    """What was analyzed must be what is annotated."""
    report = _report(model_file)
    model_file.write_bytes(model_file.read_bytes() + b"\n")

    with pytest.raises(PerfcError, match="has changed since it was analyzed"):
        report.export("onnx", model_file.with_name("annotated.onnx"))


def test_a_file_that_is_gone(model_file: Path) -> None:
    """A file that cannot be read any more is named."""
    report = _report(model_file)
    model_file.unlink()

    with pytest.raises(PerfcError, match=r"cannot read .*: No such file"):
        report.export("onnx", model_file.with_name("annotated.onnx"))


def test_a_model_of_another_kind(tmp_path: Path) -> None:
    """A model from another file is named in the refusal."""
    report = at(report_of("dlrm-ddp"), tmp_path / "g.perfc")

    with pytest.raises(PerfcError, match=r"this one is .*g\.perfc$"):
        report.export("onnx", tmp_path / "annotated.onnx")


def test_raised_ops(tmp_path: Path) -> None:
    """What stands for several ONNX nodes is shown at one; the others refer to it.

    Every op but the copies of inputs is somewhere, once.
    """
    report = report_of(str(ONNX_FILE))
    copy = tmp_path / "annotated.onnx"
    copied(report, tmp_path).export("onnx", copy)

    nodes = onnx.load(copy, load_external_data=False).graph.node
    facts = [_facts(node) for node in nodes]
    timed = [f for f in facts if "perfc.time_us" in f]
    expected = [n for n in report.nodes if n["op"] != "aten::to" and n["flops"]]
    shown = sum(float(f["perfc.flops"]) for f in timed)
    assert sum(n["flops"] for n in expected) == pytest.approx(shown, rel=1e-5)
    loops = [f for n, f in zip(nodes, facts, strict=True) if n.op_type == "Loop"]
    assert {"aten::embedding_bag"} == {f["perfc.op"] for f in loops}
    names = {node.name for node in nodes}
    parts = {f["perfc.part_of"] for f in facts if "perfc.part_of" in f}
    assert parts
    assert parts <= names
    assert not any("perfc.part_of" in f for f in timed)


def _node_data(report: Report) -> Any:
    return json.loads(str(report.export("model-explorer")))


def test_node_data(model_file: Path) -> None:
    """Values are microseconds by node name, as the adapter names those without one."""
    report = _report(model_file)
    data = _node_data(report)

    times_us = {n["id"]: {"value": n["duration_us"]} for n in report.nodes}
    assert {
        "[value] x": times_us["x"],
        "first": times_us["h"],
        "middle": times_us["r"],
        "node": times_us["y"],
    } == data["results"]


def test_node_data_schema(model_file: Path) -> None:
    """Keys are those of `GraphNodeData`; the gradient goes from 0 to 1."""
    for report in (_report(model_file), report_of("dlrm-ddp")):
        data = _node_data(report)

        assert {"name", "results", "gradient"} == set(data)
        stops = [item["stop"] for item in data["gradient"]]
        assert sorted(stops) == stops
        assert (0, 1) == (stops[0], stops[-1])
        assert all(item.keys() == {"stop", "bgColor"} for item in data["gradient"])
        assert all(result.keys() == {"value"} for result in data["results"].values())


def test_node_data_of_a_workload() -> None:
    """Nodes of other models go by their names in the report."""
    report = report_of("dlrm-ddp")

    assert {n["id"] for n in report.nodes} == set(_node_data(report)["results"])
