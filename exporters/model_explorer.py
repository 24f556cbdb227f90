"""The format `model-explorer`: node data for Google's Model Explorer.

The schema is `GraphNodeData` of the package ai-edge-model-explorer
(`model_explorer/node_data_builder.py`): a value for each node, and a gradient from
the least to the greatest. Load it over the open model with "Add per-node data".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfc.tools import Exporter, Report, format_json

if TYPE_CHECKING:
    from onnx import GraphProto

_GRADIENT = ((0.0, "#ffffff"), (0.05, "#fff3b0"), (0.3, "#f9a03f"), (1.0, "#c1121f"))
"""Most nodes take little: the lower end gets most of the colours."""


class ModelExplorer(Exporter):
    """Microseconds of each node, in colours.

    Nodes of an ONNX file go by the names that the adapter model-explorer-onnx gives
    them, inputs too, which take what their copies do; those of other models go by their
    names in the report.
    """

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the JSON text."""
        (report,) = reports
        source = report.model.source
        is_onnx = source is not None and source.suffix == ".onnx"
        times = dict(
            _of_onnx(report)
            if is_onnx
            else ((node["id"], node["duration_us"]) for node in report.nodes)
        )
        gradient = [{"stop": stop, "bgColor": color} for stop, color in _GRADIENT]
        return format_json(
            {
                "name": f"perfc: us on {report.target.name}",
                "results": {name: {"value": us} for name, us in times.items()},
                "gradient": gradient,
            }
        )


def _of_onnx(report: Report) -> Iterator[tuple[str, float]]:
    from perfc.exporters.onnx import OnnxNodes, read_onnx  # noqa: PLC0415 - imports onnx

    model, _ = read_onnx(report, "model-explorer")
    copied = {value.name: f"[value] {value.name}" for value in model.graph.input}
    for entry in report.nodes:
        if entry["id"] in copied:
            yield copied[entry["id"]], entry["duration_us"]
    names = _adapter_names(model.graph, Counter())
    for number, entries in OnnxNodes.match(report, model.graph).entries.items():
        yield names[number], math.fsum(entry["duration_us"] for entry in entries)


def _adapter_names(graph: GraphProto, times: Counter[str]) -> list[str]:
    """Return the names of nodes in Model Explorer.

    The adapter (0.4) opens files by `NameFixPass` of onnx_ir, which names nodes that
    have no name `node`, and numbers names that a graph has twice, over all its graphs.

    Args:
        graph: The graph of the model, or of an attribute of its nodes.
        times: How often each name was numbered so far.

    """
    names: dict[str, None] = {}
    for node in graph.node:
        own = name = node.name or "node"
        while name in names:
            times[own] += 1
            name = f"{own}_{times[own]}"
        names[name] = None
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _adapter_names(inner, times)
    return list(names)
