"""ONNX's own test cases of single nodes, by the modules that make them."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Sequence
from typing import Any

from onnx.backend.test.case import node as node_cases

Case = Any
"""`onnx.backend.test.case.test_case.TestCase`, which has no types."""


def cases_of(modules: Sequence[str]) -> dict[str, Case]:
    """Return the cases by name; to collect those of all modules takes ten seconds."""
    return {case.name: case for name in modules for case in _cases(name)}


@functools.cache
def _cases(module: str) -> tuple[Case, ...]:
    # Private: what a module adds to it when it is imported are its cases.
    found: list[Case] = vars(node_cases)["_NodeTestCases"]
    before = len(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what numpy thinks of their examples
        importlib.import_module(f"{node_cases.__name__}.{module}")
    return tuple(found[before:])
