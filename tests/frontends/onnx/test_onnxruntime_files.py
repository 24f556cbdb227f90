"""Files that onnxruntime's quantizers and optimizers write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frontends.evaluate import Array
from tests.frontends.onnx.onnx_models import info, node
from tests.tools.command import Command

import perfc
from perfc.passes.graphs import typed


class _Samples:
    """What onnxruntime's quantizer calibrates with: two batches, then nothing."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(0)
        self._left = [{"x": rng.random(shape, np.float32)} for _ in range(2)]

    def get_next(self) -> dict[str, Array] | None:
        return self._left.pop() if self._left else None


def _weight(name: str, *shape: int) -> TensorProto:
    rng = np.random.default_rng(0)
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)


def _convolutions() -> onnx.ModelProto:
    """A residual block with a gate, an instance norm, pools and a classifier."""
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", "x w1 b1", "a", **pads),
        node("InstanceNormalization", "a s b1", "n"),
        node("LeakyRelu", "n", "r"),
        node("Conv", "r w2 b1", "c", **pads),
        node("GlobalAveragePool", "c", "g"),
        node("Conv", "g w3", "h"),
        node("Sigmoid", "h", "gate"),
        node("Mul", "c gate", "m"),
        node("Add", "m r", "d"),
        node("Relu", "d", "e"),
        node("MaxPool", "e", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", "e", "q", kernel_shape=[2, 2], strides=[2, 2]),
        node("Concat", "p q", "k", axis=1),
        node("Flatten", "k", "f"),
        node("Gemm", "f w4 b2", "l", transB=1),
        node("Softmax", "l", "y", axis=-1),
    ]
    weights = [
        *(_weight("w1", 8, 3, 3, 3), _weight("w2", 8, 8, 3, 3)),
        *(_weight("w3", 8, 8, 1, 1), _weight("w4", 10, 256), _weight("b2", 10)),
        *(_weight("b1", 8), _weight("s", 8)),
    ]
    return _small(nodes, [2, 3, 8, 8], [2, 10], weights)


def _perceptron() -> onnx.ModelProto:
    nodes = [
        node("MatMul", "x w1", "a"),
        node("Add", "a b1", "h"),
        node("Relu", "h", "r"),
        node("Gemm", "r w2 b2", "l"),
        node("Sigmoid", "l", "y"),
    ]
    weights = [
        *(_weight("w1", 16, 32), _weight("b1", 32)),
        *(_weight("w2", 32, 1), _weight("b2", 1)),
    ]
    return _small(nodes, [4, 16], [4, 1], weights)


def _small(
    nodes: list[onnx.NodeProto],
    given: list[int],
    returned: list[int],
    weights: list[TensorProto],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "small", [info("x", given)], [info("y", returned)], weights
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _quantised(source: Path, target: Path, way: str) -> None:
    """Let onnxruntime quantise a file, in the way that *way* names."""
    tools: Any = import_module("onnxruntime.quantization")  # untyped
    if way == "dynamic":
        tools.quantize_dynamic(str(source), str(target))
        return
    shape = onnx.load(source).graph.input[0].type.tensor_type.shape
    samples = _Samples(tuple(dim.dim_value for dim in shape.dim))
    kind = getattr(tools.QuantFormat, way)
    tools.quantize_static(str(source), str(target), samples, quant_format=kind)


def _optimised(source: Path, target: Path, level: str) -> None:
    """Let onnxruntime write what its optimizers of a level made of a file."""
    runtime: Any = import_module("onnxruntime")  # untyped
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(target)
    runtime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


_WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "operators": partial(_quantised, way="QOperator"),
    "pairs": partial(_quantised, way="QDQ"),
    "dynamic": partial(_quantised, way="dynamic"),
    "optimised": partial(_optimised, level="ORT_ENABLE_EXTENDED"),
    "optimised_for_a_cpu": partial(_optimised, level="ORT_ENABLE_ALL"),
}


@pytest.mark.parametrize("writer", _WRITERS)
@pytest.mark.parametrize("model", [_convolutions, _perceptron])
def test_files_that_onnxruntime_writes(
    model: Callable[[], onnx.ModelProto],
    writer: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No op of such a file is unknown, and the command line takes it."""
    pytest.importorskip("onnxruntime", reason="onnxruntime writes the file")
    source, target = tmp_path / "model.onnx", tmp_path / "written.onnx"
    onnx.save(model(), source)
    _WRITERS[writer](source, target)
    kinds = {node.op_type for node in onnx.load(target).graph.node}

    arguments = ("analyze", str(target), "--target", "a100", "--format", "json")
    outcome = Command(capsys)(*arguments)

    assert kinds != {node.op_type for node in model().graph.node}
    assert 0 == outcome.code, outcome.err
    assert {} == outcome.report["coverage"]["unknown_ops"]


@pytest.mark.parametrize("writer", ["operators", "pairs", "dynamic"])
@pytest.mark.parametrize("model", [_convolutions, _perceptron])
def test_products_are_of_eight_bits(
    model: Callable[[], onnx.ModelProto], writer: str, tmp_path: Path
) -> None:
    """A runtime that fuses multiplies in 8 bits, however the file spells it out."""
    pytest.importorskip("onnxruntime", reason="onnxruntime writes the file")
    source, target = tmp_path / "model.onnx", tmp_path / "written.onnx"
    onnx.save(model(), source)
    _WRITERS[writer](source, target)

    eager = perfc.analyze(str(target), "a100")
    report = perfc.analyze(str(target), "a100", runtime="compiled")
    graph = report.model.program.classes[0].ops
    assert graph is not None
    products = [node for node in graph if node.op in ("matmul", "linear", "conv")]
    bits = {typed(node.operands[0]).dtype.bits for node in products}
    remarks = {one.code for one in eager.diagnostics}

    assert {8} == bits
    assert ("unfused-qdq" in remarks) == (writer == "pairs")
    assert "unfused-qdq" not in {one.code for one in report.diagnostics}
