"""Fitted parameters: files that `make fit` writes, with their source and date."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FITTED_FOLDER = Path(__file__).parents[1] / "fitted"
"""Folder of the fitted files, one file a family of models."""

Parameters = Mapping[str, Any]
"""A file's tables."""


@functools.cache
def fitted(name: str) -> Parameters:
    """Return the parameters of a family of models, read when first asked for."""
    return tomllib.loads((FITTED_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
