"""Exporters: a report in the formats that other tools open.

Each is found through the entry points `perfc.exporters`, as those of other
distributions are, and loaded when its format is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfc.exporters.csv_table import CsvTable
    from perfc.exporters.html_page import HtmlPage
    from perfc.exporters.json_report import JsonReport
    from perfc.exporters.kineto_trace import KinetoTrace
    from perfc.exporters.markdown import Markdown
    from perfc.exporters.model_explorer import ModelExplorer
    from perfc.exporters.onnx_metadata import OnnxMetadata
    from perfc.exporters.text_table import TextTable

__all__ = [
    "CsvTable",
    "HtmlPage",
    "JsonReport",
    "KinetoTrace",
    "Markdown",
    "ModelExplorer",
    "OnnxMetadata",
    "TextTable",
]

_MODULES = {
    "CsvTable": "csv_table",
    "HtmlPage": "html_page",
    "JsonReport": "json_report",
    "KinetoTrace": "kineto_trace",
    "Markdown": "markdown",
    "ModelExplorer": "model_explorer",
    "OnnxMetadata": "onnx_metadata",
    "TextTable": "text_table",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found
