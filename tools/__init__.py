"""Drivers: the library's calls, the command line, and the reports of both.

Names are loaded when first used, so that `perfc --help` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfc.tools.analyzer import analyze, conversions
    from perfc.tools.exporter import Exporter
    from perfc.tools.model import Model, load
    from perfc.tools.onnx_export import export_onnx
    from perfc.tools.report import Report, format_json
    from perfc.tools.report_memory import memory_timeline
    from perfc.tools.report_nodes import NODE_KEYS
    from perfc.tools.report_numbers import format_bytes, format_us
    from perfc.tools.report_summary import kernel_limit
    from perfc.tools.results import Results
    from perfc.tools.torch_models import compile_backend, from_torch

__all__ = [
    "NODE_KEYS",
    "Exporter",
    "Model",
    "Report",
    "Results",
    "analyze",
    "compile_backend",
    "conversions",
    "export_onnx",
    "format_bytes",
    "format_json",
    "format_us",
    "from_torch",
    "kernel_limit",
    "load",
    "memory_timeline",
]

_MODULES = {
    "NODE_KEYS": "perfc.tools.report_nodes",
    "Exporter": "perfc.tools.exporter",
    "Model": "perfc.tools.model",
    "Report": "perfc.tools.report",
    "Results": "perfc.tools.results",
    "analyze": "perfc.tools.analyzer",
    "compile_backend": "perfc.tools.torch_models",
    "conversions": "perfc.tools.analyzer",
    "export_onnx": "perfc.tools.onnx_export",
    "format_bytes": "perfc.tools.report_numbers",
    "format_json": "perfc.tools.report",
    "format_us": "perfc.tools.report_numbers",
    "from_torch": "perfc.tools.torch_models",
    "kernel_limit": "perfc.tools.report_summary",
    "load": "perfc.tools.model",
    "memory_timeline": "perfc.tools.report_memory",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(import_module(_MODULES[name]), name)
    return found
