"""Modules of one's own that register passes, cost models, targets."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from perfc.ir import PerfcError, support


def import_plugin(text: str) -> None:
    """Import a file, or a module that is installed or in the current folder."""
    path = Path(text)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        msg = f"--plugin {text}: no such file"
        raise PerfcError(msg)
    folder = str((path.parent if is_file else Path()).resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(path.stem if is_file else text)
    except PerfcError:
        raise
    except Exception as error:
        msg = (
            f"--plugin {text}: {type(error).__name__}: {error}{support.moved_to(error)}"
        )
        raise PerfcError(msg) from error
    source: str | None = getattr(module, "__file__", None)
    if source is None:
        msg = f"--plugin {text}: no .py file, and no folder with an __init__.py"
        raise PerfcError(msg)
    found = Path(source)
    if is_file and found.resolve() != path.resolve():
        msg = f"--plugin {text}: a module has this name already ({found}); rename yours"
        raise PerfcError(msg)
