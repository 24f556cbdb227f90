"""Drivers: the library's calls, the command line, and the reports of both.

Names are loaded when first used, so that `perfc --help` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfc.tools.analyzer import analyze
    from perfc.tools.model import Model, load
    from perfc.tools.report import Report

__all__ = ["Model", "Report", "analyze", "load"]

_MODULES = {
    "Model": "perfc.tools.model",
    "Report": "perfc.tools.report",
    "analyze": "perfc.tools.analyzer",
    "load": "perfc.tools.model",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(import_module(_MODULES[name]), name)
    return found
