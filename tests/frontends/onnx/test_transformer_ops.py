"""ONNX's transformer ops, and onnxruntime's, compute what they compute there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.frontends.evaluate import Array, outputs
from tests.frontends.onnx.onnx_values import run_reference

import perfc
from perfc.frontends.onnx import OnnxFrontend
from perfc.ir import Graph
from perfc.passes import PassManager, ShapeInference
from perfc.passes.instruments import VerifyEach
from perfc.passes.shapes import FoldShapes

MICROSOFT = "com.microsoft"
HEADS = {"num_heads": 2}
FLAT: dict[str, tuple[int, ...]] = {"x": (2, 3, 8), "k": (2, 5, 8), "v": (2, 5, 8)}
FOUR: dict[str, tuple[int, ...]] = {
    "x": (2, 4, 3, 8),
    "k": (2, 2, 5, 8),
    "v": (2, 2, 5, 8),
}
WEIGHTS: dict[str, tuple[int, ...]] = {"w": (8,), "b": (8,)}

Shapes = dict[str, tuple[int, ...]]
CASES: dict[str, tuple[str, str, Shapes, dict[str, Any]]] = {
    "attention": ("Attention", "x k v", FOUR, {"is_causal": 0}),
    "attention_flat": (
        "Attention",
        "x k v",
        FLAT,
        {"q_num_heads": 2, "kv_num_heads": 2, "scale": 0.3},
    ),
    "layer_norm": ("LayerNormalization", "x w b", {"x": (2, 3, 8), **WEIGHTS}, {}),
    "rms_norm": ("RMSNormalization", "x w", {"x": (2, 3, 8), **WEIGHTS}, {}),
    "group_norm": (
        "GroupNormalization",
        "x w b",
        {"x": (2, 8, 3), **WEIGHTS},
        {"num_groups": 2},
    ),
    "instance_norm": (
        "InstanceNormalization",
        "x w b",
        {"x": (2, 8, 3), **WEIGHTS},
        {},
    ),
    "gelu": ("Gelu", "x", FLAT, {"approximate": "tanh"}),
    "hard_swish": ("HardSwish", "x", FLAT, {}),
    "mish": ("Mish", "x", FLAT, {}),
    "ms_gelu": (f"{MICROSOFT}::Gelu", "x", FLAT, {}),
    "ms_quick_gelu": (f"{MICROSOFT}::QuickGelu", "x", FLAT, {}),
    "ms_bias_gelu": (f"{MICROSOFT}::BiasGelu", "x b", {**FLAT, **WEIGHTS}, {}),
    "ms_fast_gelu": (f"{MICROSOFT}::FastGelu", "x b", {**FLAT, **WEIGHTS}, {}),
    "ms_skip": (
        f"{MICROSOFT}::SkipLayerNormalization",
        "x s w b",
        {"x": (2, 3, 8), "s": (2, 3, 8), **WEIGHTS},
        {"epsilon": 1e-5},
    ),
    "ms_skip_simplified": (
        f"{MICROSOFT}::SkipSimplifiedLayerNormalization",
        "x s w b",
        {"x": (2, 3, 8), "s": (2, 3, 8), **WEIGHTS},
        {"epsilon": 1e-5},
    ),
    "ms_fused_matmul": (
        f"{MICROSOFT}::FusedMatMul",
        "x k",
        FLAT,
        {"transB": 1, "alpha": 0.5},
    ),
    "ms_fused_matmul_of_rows": (
        f"{MICROSOFT}::FusedMatMul",
        "x k",
        {"x": (3, 2, 8), "k": (8, 2, 5)},
        {"transBatchA": 1, "transBatchB": 1, "alpha": 0.5},
    ),
    "ms_fused_matmul_of_columns": (
        f"{MICROSOFT}::FusedMatMul",
        "x k",
        {"x": (8, 2, 3), "k": (5, 2, 8)},
        {"transA": 1, "transBatchA": 1, "transB": 1, "transBatchB": 1},
    ),
    "ms_attention": (
        f"{MICROSOFT}::Attention",
        "x w b",
        {"x": (2, 3, 8), "w": (8, 24), "b": (24,)},
        {**HEADS, "unidirectional": 1},
    ),
    "ms_multi_head": (
        f"{MICROSOFT}::MultiHeadAttention",
        "x k v b",
        {**FLAT, "b": (24,)},
        HEADS,
    ),
}
"""Op, operands, shapes and attributes; `b` and `w` are weights."""


def _node(op: str, operands: str, attributes: dict[str, Any]) -> onnx.NodeProto:
    domain, _, name = op.rpartition("::")
    names = ["" if part == "-" else part for part in operands.split()]
    return helper.make_node(name, names, ["y"], "node", domain=domain, **attributes)


def _model(
    node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]], rng: np.random.Generator
) -> onnx.ModelProto:
    read = [name for name in node.input if name]
    weights = [
        onnx.numpy_helper.from_array(
            rng.standard_normal(shapes[name]).astype(np.float32), name
        )
        for name in read
        if name in {"w", "b"}
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name])
        for name in read
        if name not in {"w", "b"}
    ]
    result = onnx.ValueInfoProto(name="y")
    result.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph([node], "test", inputs, [result], weights)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("name", CASES)
def test_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    """The ops that a node becomes give its numbers."""
    pytest.importorskip("onnxruntime", reason="the reference run needs onnxruntime")
    op, operands, shapes, attributes = CASES[name]
    rng = np.random.default_rng(0)
    model = _model(_node(op, operands, attributes), shapes, rng)
    inputs: dict[str, Array] = {
        i.name: rng.standard_normal(shapes[i.name]).astype(np.float32)
        for i in model.graph.input
    }
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    (expected,) = run_reference(model, inputs).values()
    (actual, *_) = outputs(_front(model, tmp_path), {**stored, **inputs})

    assert expected.shape == actual.shape
    assert np.allclose(actual, np.asarray(expected, np.float64), rtol=1e-3, atol=1e-4)


def test_grouped_queries(tmp_path: Path) -> None:
    """Few heads of keys and values, packed with the queries, causal, with a cache."""
    node = helper.make_node(
        "GroupQueryAttention",
        ["x", "", "", "pk", "pv", "lengths", "total"],
        ["y", "present_key", "present_value"],
        domain=MICROSOFT,
        num_heads=4,
        kv_num_heads=2,
    )
    inputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("x", TensorProto.FLOAT, (2, 3, 64)),
            ("pk", TensorProto.FLOAT, (2, 2, 5, 8)),
            ("pv", TensorProto.FLOAT, (2, 2, 5, 8)),
            ("lengths", TensorProto.INT32, (2,)),
            ("total", TensorProto.INT32, (1,)),
        )
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "test", inputs, results)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    front = _front(model, tmp_path)
    (attention,) = [n for n in front if n.op == "attention"]
    shapes = [v.type.shape for v in front.outputs if v.type is not None]

    assert attention.attributes.flag("causal")
    assert [(2, 3, 32), (2, 2, 8, 8), (2, 2, 8, 8)] == shapes


@pytest.mark.parametrize(
    ("name", "per_sample", "samples"),
    [
        # torch.utils.flop_counter's rules: 128 tokens through 12 layers and the head.
        (
            "bert_base_dynamo",
            128 * (12 * (24 * 768**2 + 4 * 128 * 768) + 2 * 768 * (768 + 30522)),
            16,
        ),
        ("resnet50_dynamo", 8.2e9, 64),
    ],
)
def test_flops_of_full_size_models(name: str, per_sample: float, samples: int) -> None:
    """All flops, elementwise ones included, are those of the matmuls within 0.5 %."""
    root = Path(__file__).parents[4] / "shared" / "data" / "models"
    path = root / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: it is no part of the repository")
    report = perfc.analyze(perfc.load(path), target="a100").to_dict()

    assert pytest.approx(per_sample, rel=0.005) == report["summary"]["flops"] / samples


def _front(model: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    program = OnnxFrontend().load(path)
    PassManager((ShapeInference(), FoldShapes()), (VerifyEach(),)).run(program)
    graph = program.classes[0].ops
    assert graph is not None
    return graph
