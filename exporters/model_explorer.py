"""The format `model-explorer`: node data for Google's Model Explorer.

The schema is `GraphNodeData` of the package ai-edge-model-explorer
(`model_explorer/node_data_builder.py`): a value for each node, and a gradient from
the least to the greatest. Load it over the open model with "Add per-node data".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfc.tools import Exporter, Report, format_json

_GRADIENT = ((0.0, "#ffffff"), (0.05, "#fff3b0"), (0.3, "#f9a03f"), (1.0, "#c1121f"))
"""Most nodes take little: the lower end gets most of the colours."""


class ModelExplorer(Exporter):
    """Microseconds of each node, in colours.

    Nodes of an ONNX file go by the names that its adapter gives them: the node's own
    name, or the name of its first result where it has none. Those of other models go
    by their names in the report.
    """

    def export(self, reports: Sequence[Report], path: Path | None) -> str:
        """Return the JSON text."""
        (report,) = reports
        source = report.model.source
        is_onnx = source is not None and source.suffix == ".onnx"
        times = dict(_of_onnx(report) if is_onnx else _of_report(report))
        gradient = [{"stop": stop, "bgColor": color} for stop, color in _GRADIENT]
        return format_json(
            {
                "name": f"perfc: us on {report.target.name}",
                "results": {name: {"value": us} for name, us in times.items()},
                "gradient": gradient,
            }
        )


def _of_report(report: Report) -> Iterator[tuple[str, float]]:
    for node in report.nodes:
        yield node["id"], node["duration_us"]


def _of_onnx(report: Report) -> Iterator[tuple[str, float]]:
    from perfc.exporters.onnx import OnnxNodes, read_onnx  # noqa: PLC0415 - imports onnx

    model, _ = read_onnx(report, "model-explorer")
    for number, entries in OnnxNodes.match(report, model.graph).entries.items():
        node = model.graph.node[number]
        yield node.name or node.output[0], math.fsum(e["duration_us"] for e in entries)
