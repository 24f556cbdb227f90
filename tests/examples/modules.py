"""Scripts of `examples/`, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    """Return the module of a script, as `autotune/triton_gemm`."""
    path = FOLDER / f"{name}.py"
    known = f"examples.{name.replace('/', '.')}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[known]
