"""Model Explorer reads node data, and finds every node of it in the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from tests.exporters.predictions import ONNX_FILE, report_of

import perfc
from perfc.tools import Report

pytestmark = pytest.mark.filterwarnings("ignore")  # of other projects
_REASON = "needs ai-edge-model-explorer and model-explorer-onnx: `make install`"
dacite = pytest.importorskip("dacite", reason=_REASON)
builder = pytest.importorskip("model_explorer.node_data_builder", reason=_REASON)
adapter = pytest.importorskip("model_explorer_onnx.main", reason=_REASON)

STRICT = dacite.Config(strict=True)


def _node_data(report: Report) -> Any:
    """Return the node data as Model Explorer's own type, no key unknown to it."""
    document = json.loads(str(report.export("model-explorer")))
    return dacite.from_dict(builder.GraphNodeData, document, STRICT)


def _shown(path: Path) -> dict[str, list[str]]:
    """Return the results of each node of the main graph, by its name there."""
    main = adapter.ONNXAdapter().convert(str(path), {})["graphs"][0]
    return {
        node.id: [
            attr.value
            for result in node.outputsMetadata
            for attr in result.attrs
            if attr.key == "__tensor_tag"
        ]
        for node in main.nodes
    }


def test_node_data_of_a_file() -> None:
    """Every node that is timed is in the model, which takes what the report says."""
    report = report_of(str(ONNX_FILE))
    data = _node_data(report)
    shown = _shown(ONNX_FILE)

    assert data.results.keys() <= shown.keys()
    ops = [node for node in report.nodes if not node["op"].startswith("cuda")]
    expected_us = sum(node["duration_us"] for node in ops)
    data_us = sum(result.value for result in data.results.values())
    assert expected_us == pytest.approx(data_us, rel=1e-9)


def test_nodes_without_names(tmp_path: Path) -> None:
    """Nodes without a name, or with that of another, are found in all graphs."""
    path = tmp_path / "model.onnx"
    onnx.save(_unnamed(), path)
    report = perfc.analyze(perfc.load(path), "a100")
    results = _node_data(report).results
    shown = _shown(path)

    times_us = {node["id"]: node["duration_us"] for node in report.nodes}
    expected = {
        name: times_us[made[0]]
        for name, made in shown.items()
        if made and made[0] in times_us
    }
    assert {"x", "a", "b", "d", "e", "y"} <= {shown[name][0] for name in results}
    assert expected == {name: results[name].value for name in expected}
    assert results.keys() <= shown.keys()


def _unnamed() -> onnx.ModelProto:
    """Return a model with unnamed nodes, also in branches, and with a name twice."""
    then, other = (
        helper.make_graph(
            [
                helper.make_node("Neg", ["b"], [f"{name}0"]),
                helper.make_node("Exp", [f"{name}0"], [f"{name}1"]),
            ],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}1", TensorProto.FLOAT, [8, 64])],
        )
        for name in ("then", "else")
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"], name="same"),
        helper.make_node(
            "If", ["flag"], ["c"], name="choice", then_branch=then, else_branch=other
        ),
        helper.make_node("Sqrt", ["c"], ["d"]),
        helper.make_node("Abs", ["d"], ["e"], name="same"),
        helper.make_node("Tanh", ["e"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor("flag", TensorProto.BOOL, [], [True])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_node_data_of_a_workload() -> None:
    """Those of a model without a file have its schema, too."""
    report = report_of("dlrm-ddp")
    data = _node_data(report)

    assert {n["id"]: n["duration_us"] for n in report.nodes} == {
        name: result.value for name, result in data.results.items()
    }


@pytest.mark.slow
def test_node_data_of_an_export(tmp_path: Path) -> None:
    """Ops of a `.pt2` file are where its own adapter shows them."""
    import torch

    pytorch = pytest.importorskip(
        "model_explorer.builtin_pytorch_exportedprogram_adapter", reason=_REASON
    )
    path = tmp_path / "model.pt2"
    module = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)
    )
    exported = torch.export.export(module.eval(), (torch.randn(16, 64),))
    torch.export.save(exported, path)
    results = _node_data(perfc.analyze(perfc.load(path), "a100")).results
    explorer: Any = pytorch.BuiltinPytorchExportedProgramAdapter()
    settings = {"const_element_count_limit": 16}
    (graph,) = explorer.convert(str(path), settings)["graphs"]

    shown = {node.id for node in graph.nodes}
    calls = {name for name in results if name.startswith("cuda")}
    assert {"linear", "gelu", "layer_norm"} <= results.keys()
    assert results.keys() - calls <= shown
