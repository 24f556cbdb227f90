"""Tests of `benchmarks/training`, which is not installed."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

OPTIONAL = ("lightgbm", "scipy")
"""What only fits of shipped parameters need."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Skip a test that asks for an optional package which is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in OPTIONAL:
            raise
        pytest.skip(f"{missing} is not installed, which this fit needs")
