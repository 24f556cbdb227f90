"""Sources of PyTorch models: functions of files and modules that make them.

PyTorch is imported when one is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from perfc.installed import version
from perfc.ir import PerfcError, Program

if TYPE_CHECKING:
    from perfc.frontends.torch import Source

OLDEST_TORCH = (2, 13)
"""What captures are tested with; the extra `perfc[torch]` in pyproject.toml says so."""

OLDEST_MEASURED = (2, 6)
"""What models and ops are run with; so says the extra `perfc[measure]`."""


def read_torch(
    model: str | Path | Source,
    *,
    mode: str,
    optimizer: str | None,
    dtype: str | None = None,
    dims: Mapping[str, int] | None = None,
) -> Program:
    """Read a model of PyTorch: an export as it is, anything else is recorded.

    Args:
        model: A module, an export of one, or the name of a function that makes either.
        mode: Of what is recorded.
        optimizer: Of what is recorded.
        dtype: Of what is recorded.
        dims: Numbers that data decide, of what is recorded.

    """
    require_torch()
    from perfc.frontends import torch as frontend

    if isinstance(model, str | Path):
        return frontend.capture_factory(
            str(model), mode=mode, optimizer=optimizer, dtype=dtype, dims=dims
        )
    if frontend.is_exported(model):
        return frontend.read_exported(model)
    chosen = optimizer or "sgd" if mode == "training" else None
    recording = frontend.Recording(
        mode=mode, optimizer=chosen, dtype=dtype, dims=dims or {}
    )
    return frontend.capture_module(model, recording)


def require_torch(what: str = "a PyTorch module", extra: str = "torch") -> None:
    """Make sure that PyTorch can be imported, as new as an extra of perfc needs it.

    Args:
        what: What needs PyTorch: it begins the error.
        extra: `torch` for captures, `measure` for running ops and models.

    """
    if find_spec("torch") is None:
        msg = f"{what} needs PyTorch: pip install 'perfc[{extra}]'"
        raise PerfcError(msg)
    oldest = OLDEST_MEASURED if extra == "measure" else OLDEST_TORCH
    found = version("torch") or "one of unknown version"
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < oldest:
        msg = (
            f"{what} needs PyTorch {'.'.join(map(str, oldest))} or newer, found "
            f"{found}: pip install --upgrade 'perfc[{extra}]'"
        )
        raise PerfcError(msg)


def start_torch() -> None:
    """Make sure that there is PyTorch to measure with, and that it stays silent."""
    require_torch("measuring", "measure")
    # 6 is above all levels of Kineto's log, that of its probe points included.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
