"""Attention, norms, activations and linear layers, out of exported files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.frontends.evaluate import Array, outputs
from tests.frontends.onnx.onnx_values import fill, run_reference
from tests.frontends.onnx.rewrites import shuffled, stripped, swapped

from perfc.frontends.onnx import OnnxFrontend
from perfc.ir import Graph
from perfc.passes import PassManager
from perfc.passes.instruments import VerifyEach
from perfc.passes.pipelines import loading_pipeline

FOLDER = Path(__file__).parents[2] / "fixtures" / "transformers"
FIXTURES = sorted(FOLDER.glob("*.onnx"))
RAISED = {
    "encoder": {"attention": 1, "layer_norm": 1, "gelu": 1, "linear": 6},
    "decoder": {"attention": 1, "layer_norm": 1, "gelu": 1, "linear": 1},
    "rotary": {"attention": 1, "rms_norm": 1, "rotary": 2, "silu": 1, "linear": 4},
    "fused": {"attention": 1, "linear": 1},
    "norms": {"group_norm": 3},
    "activations": {"gelu": 5, "silu": 2, "hardswish": 2},
}
"""What each block is made of."""
GONE = {"matmul", "softmax", "reduce", "erf", "tanh", "sigmoid", "sqrt", "clip"}
BATCH = 3
NOTED = {
    "norms_dynamo_op18": "its ones and zeros look like weights",
    "fused_grouped_dynamo_op18": "heads repeated inside the call, or before it?",
}
"""Files whose structure alone leaves something open."""


def _stem(path: Path) -> str:
    """Name a test after its file."""
    return path.stem


every_fixture = pytest.mark.parametrize("path", FIXTURES, ids=_stem)


@every_fixture
def test_computes_what_onnxruntime_computes(path: Path) -> None:
    """The raised graph gives the numbers of the file."""
    pytest.importorskip("onnxruntime", reason="the reference run needs onnxruntime")
    rng = np.random.default_rng(0)
    model = fill(onnx.load(path, load_external_data=False), rng)
    inputs = _inputs(model, rng)

    (expected,) = run_reference(model, inputs).values()
    (actual,) = outputs(_front(path), {**_stored(model), **inputs})

    assert expected.shape == actual.shape
    assert np.allclose(actual, np.asarray(expected, np.float64), rtol=1e-3, atol=1e-4)


@every_fixture
def test_every_block_is_raised(path: Path) -> None:
    """Each op that was spelled out is one op, and nothing of it is left."""
    expected = RAISED[path.stem.partition("_")[0]]
    ops = Counter(node.op for node in _front(path))

    assert expected == {op: ops[op] for op in expected}
    assert set() == set(ops) & GONE


@every_fixture
def test_needs_no_metadata(path: Path, tmp_path: Path) -> None:
    """The structure alone tells what is computed."""
    model = stripped(onnx.load(path, load_external_data=False))
    if path.stem in NOTED:
        pytest.skip(NOTED[path.stem])

    assert _counted(path) == _counted(_written(model, tmp_path))


@every_fixture
def test_order_does_not_matter(path: Path, tmp_path: Path) -> None:
    """Neither the order of nodes nor that of commutative operands matters."""
    model = swapped(onnx.load(path, load_external_data=False))
    model = shuffled(model, np.random.default_rng(1))

    assert _counted(path) == _counted(_written(model, tmp_path))


@pytest.mark.parametrize(
    ("name", "spelled_out"),
    [
        *(("encoder_legacy_op17", True), ("encoder_dynamo_op18", True)),
        *(("decoder_legacy_op17", True), ("decoder_dynamo_op18", True)),
        *(("fused_boolean_legacy_op17", False), ("fused_boolean_dynamo_op18", False)),
        ("fused_grouped_dynamo_op23", False),
    ],
)
def test_attention_tells_who_spelled_it_out(name: str, *, spelled_out: bool) -> None:
    """Attention by hand lists its calls; what exporters write out is one call."""
    (node,) = [n for n in _front(FOLDER / f"{name}.onnx") if n.op == "attention"]

    assert spelled_out == ("spelled_out" in node.attributes)


@pytest.mark.parametrize("name", ["legacy_op17", "dynamo_op18", "dynamo_op20"])
def test_activations_tell_who_spelled_them_out(name: str) -> None:
    """GELU by hand lists its calls in both forms, and so does what has no call."""
    graph = _front(FOLDER / f"activations_{name}.onnx")
    by_hand = Counter(n.op for n in graph if "spelled_out" in n.attributes)
    noted = {"silu": 1} if "dynamo" in name else {}  # else it looks like one call

    assert {"gelu": 3, "hardswish": 1, **noted} == by_hand


def test_causal_attention_has_no_mask() -> None:
    """The triangle that exporters make for `is_causal` is an attribute."""
    for exporter in ("legacy_op17", "dynamo_op18", "dynamo_op23"):
        graph = _front(FOLDER / f"fused_causal_{exporter}.onnx")
        (node,) = [n for n in graph if n.op == "attention"]

        assert (True, 3) == (node.attributes.flag("causal"), len(node.operands))


def _front(path: Path) -> Graph:
    program = OnnxFrontend().load(path)
    PassManager(loading_pipeline(()), (VerifyEach(),)).run(program)
    graph = program.classes[0].ops
    assert graph is not None
    return graph


def _counted(path: Path) -> Counter[str]:
    return Counter(node.op for node in _front(path))


def _written(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "rewritten.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _inputs(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, Array]:
    """Random vectors; a mask shows every key but the last."""
    inputs: dict[str, Array] = {}
    for declared in model.graph.input:
        sizes = [d.dim_value or BATCH for d in declared.type.tensor_type.shape.dim]
        values = rng.standard_normal(sizes).astype(np.float32)
        if declared.name == "mask":
            values = np.ones(sizes, np.float32)
            values[:, -1] = 0
        inputs[declared.name] = values
    return inputs


def _stored(model: onnx.ModelProto) -> dict[str, Array]:
    """Numbers of the initializers, and of constants that the graph does not know."""
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                stored[node.output[0]] = onnx.numpy_helper.to_array(attribute.t)
    return stored
