"""The quantised node cases of the installed onnx are analyzed, none as unknown ops."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

import perfc

QUANTISED = frozenset(
    (
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
        *("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"),
    )
)
"""ONNX's ops of few bits."""

PRODUCTS = {"MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"}
AT_LEAST = 40
"""As many cases onnx 1.16 has; newer ones have more."""


@functools.cache
def _cases() -> dict[str, onnx.ModelProto]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what numpy thinks of their examples
        cases = collect_testcases("")
    found = {
        case.name: case.model
        for case in cases
        if isinstance(case.model, onnx.ModelProto)
    }
    return {
        name: model
        for name, model in found.items()
        if QUANTISED & {node.op_type for node in model.graph.node}
    }


def test_there_are_as_many() -> None:
    """All ops of few bits have cases."""
    ops = {node.op_type for model in _cases().values() for node in model.graph.node}

    assert len(_cases()) >= AT_LEAST
    assert ops >= QUANTISED


@pytest.mark.parametrize("name", sorted(_cases()))
@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_no_op_is_dear_or_free(name: str, runtime: str, tmp_path: Path) -> None:
    """Every case has kernels that are known; products are of 8 bits."""
    path = tmp_path / "case.onnx"
    model = _cases()[name]
    onnx.save(model, path)

    report = perfc.analyze(str(path), "h100", runtime=runtime)
    kernels = [node for node in report.nodes if node["bytes"]]

    assert {} == report.coverage["unknown_ops"]
    assert kernels
    assert all(node["duration_us"] > 0 for node in kernels)
    if PRODUCTS & {node.op_type for node in model.graph.node}:
        assert any(node["flops"] for node in kernels)
