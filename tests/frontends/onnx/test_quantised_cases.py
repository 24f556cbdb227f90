"""The quantised node cases of the installed onnx are analyzed, none as unknown ops."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from tests.frontends.onnx.node_cases import cases_of

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


_MODULES = (
    *("quantizelinear", "dequantizelinear", "dynamicquantizelinear"),
    *("matmulinteger", "convinteger", "qlinearmatmul", "qlinearconv"),
)
CASES: dict[str, onnx.ModelProto] = {
    name: case.model for name, case in cases_of(_MODULES).items()
}


def test_there_are_as_many() -> None:
    """All ops of few bits have cases."""
    ops = {node.op_type for model in CASES.values() for node in model.graph.node}

    assert len(CASES) >= AT_LEAST
    assert ops >= QUANTISED


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_no_op_is_dear_or_free(name: str, runtime: str, tmp_path: Path) -> None:
    """Every case has kernels that are known; products are of 8 bits."""
    path = tmp_path / "case.onnx"
    model = CASES[name]
    onnx.save(model, path)

    report = perfc.analyze(str(path), "h100", runtime=runtime)
    kernels = [node for node in report.nodes if node["bytes"]]

    assert {} == report.coverage["unknown_ops"]
    assert kernels
    assert all(node["duration_us"] > 0 for node in kernels)
    if PRODUCTS & {node.op_type for node in model.graph.node}:
        assert any(node["flops"] for node in kernels)
