"""ONNX's protobuf classes, without the rest of the `onnx` package.

`import onnx` also imports its checker, helpers and compiled extensions, which
takes longer than perfc needs for a whole model. The generated module
`onnx.onnx_ml_pb2` needs none of them; it is registered under its own name, so a
later `import onnx` in the same process finds and shares it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from perfc.ir import PerfcError

_NAME = "onnx.onnx_ml_pb2"


def _load() -> ModuleType:
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    package = importlib.util.find_spec("onnx")
    spec = _generated(package)
    if spec is None or spec.loader is None:
        return importlib.import_module(_NAME)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


def _generated(package: ModuleSpec | None) -> ModuleSpec | None:
    """Return the spec of the generated module inside the onnx package."""
    if package is None:
        msg = "reading ONNX files needs the package onnx: pip install onnx"
        raise PerfcError(msg)
    for folder in package.submodule_search_locations or ():
        path = Path(folder) / "onnx_ml_pb2.py"
        if path.is_file():
            return importlib.util.spec_from_file_location(_NAME, path)
    return None


if TYPE_CHECKING:
    import onnx
else:
    onnx = _load()

__all__ = ["onnx"]
