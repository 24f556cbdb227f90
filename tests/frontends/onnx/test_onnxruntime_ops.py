"""What onnxruntime's optimizers and quantizers write is read as what it computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.frontends.evaluate import Array
from tests.frontends.onnx.onnx_values import run_reference

from perfc.frontends.onnx import OnnxFrontend
from perfc.ir import Graph, Node, Work
from perfc.ir.ops import BUILTIN_OPS
from perfc.passes import PassManager, ShapeInference
from perfc.passes.instruments import VerifyEach
from perfc.passes.shapes import FoldShapes

MICROSOFT = "com.microsoft"
_DTYPES: dict[str, Any] = {
    "f": np.float32,
    "h": np.float16,
    "u": np.uint8,
    "s": np.int8,
    "i": np.int32,
    "b": np.bool_,
}
SCALED = "f u"
"""Scale and zero point of unsigned bytes."""

IMAGE = "u2,6,8,8 f u"
NHWC = "f2,8,8,6"
WINDOW = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
ATTENTION = {"num_heads": 2}
PACKED = {"K": 64, "N": 32, "block_size": 32}

CASES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "add": ("QLinearAdd", f"u2,4 {SCALED} u4 {SCALED} {SCALED}", {}, "u8[2,4]"),
    "mul": ("QLinearMul", f"u2,1 {SCALED} u4 {SCALED} {SCALED}", {}, "u8[2,4]"),
    "sigmoid": ("QLinearSigmoid", f"u2,4 {SCALED} {SCALED}", {}, "u8[2,4]"),
    "leaky_relu": ("QLinearLeakyRelu", f"u2,4 {SCALED} {SCALED}", {}, "u8[2,4]"),
    "softmax": (
        "QLinearSoftmax",
        f"u2,4 {SCALED} {SCALED}",
        {"opset": 13, "axis": -1},
        "u8[2,4]",
    ),
    "average_pool": (
        "QLinearAveragePool",
        f"{IMAGE} {SCALED}",
        WINDOW,
        "u8[2,6,4,4]",
    ),
    "average_pool_nhwc": (
        "QLinearAveragePool",
        f"{IMAGE} {SCALED}",
        {**WINDOW, "channels_last": 1},
        "u8[2,3,4,8]",
    ),
    "global_pool": (
        "QLinearGlobalAveragePool",
        f"{IMAGE} {SCALED}",
        {},
        "u8[2,6,1,1]",
    ),
    "global_pool_nhwc": (
        "QLinearGlobalAveragePool",
        f"{IMAGE} {SCALED}",
        {"channels_last": 1},
        "u8[2,1,1,8]",
    ),
    "concat": (
        "QLinearConcat",
        f"{SCALED} u2,3 {SCALED} u2,4 {SCALED}",
        {"axis": 1},
        "u8[2,7]",
    ),
    "where": (
        "QLinearWhere",
        f"b2,1 u2,4 {SCALED} u4 {SCALED} {SCALED}",
        {},
        "u8[2,4]",
    ),
    "reduce_mean": (
        "QLinearReduceMean",
        f"u2,4,3 {SCALED} {SCALED}",
        {"axes": [1], "keepdims": 0},
        "u8[2,3]",
    ),
    "conv_nhwc": (
        "QLinearConv",
        f"u2,8,8,6 {SCALED} u4,6,3,3 {SCALED} {SCALED} i4",
        {**WINDOW, "channels_last": 1},
        "u8[2,4,4,4]",
    ),
    "gemm": (
        "QGemm",
        f"u3,2 {SCALED} u5,3 {SCALED} i5 {SCALED}",
        {"transA": 1, "transB": 1},
        "u8[2,5]",
    ),
    "gemm_to_float": ("QGemm", f"u2,3 {SCALED} u3,5 {SCALED}", {}, "f32[2,5]"),
    "dynamic_matmul": (
        "DynamicQuantizeMatMul",
        "f2,4,3 s3,5 f s f5",
        {},
        "f32[2,4,5]",
    ),
    "matmul_to_float": (
        "MatMulIntegerToFloat",
        "u2,4,3 s3,5 f f u s f5",
        {},
        "f32[2,4,5]",
    ),
    "lstm": (
        "DynamicQuantizeLSTM",
        "f7,2,4 s1,4,12 s1,3,12 f1,24 - - - - f1 s1 f1 s1",
        {"hidden_size": 3},
        "f32[7,1,2,3]",
    ),
    "four_bits": ("MatMulNBits", "f2,3,64 u32,2,16 f64", PACKED, "f32[2,3,32]"),
    "eight_bits": (
        "MatMulNBits",
        "f2,3,64 u32,2,32 f64 - - f32",
        {**PACKED, "bits": 8},
        "f32[2,3,32]",
    ),
    "normal_floats": (
        "MatMulBnb4",
        "f2,3,64 u1024 f64",
        {**PACKED, "quant_type": 1},
        "f32[2,3,32]",
    ),
    "attention_of_integers": (
        "QAttention",
        "u2,3,8 s8,24 f24 f f i2 u s f2,2,2,5,4",
        {**ATTENTION, "unidirectional": 1},
        "f32[2,3,8] f32[2,2,2,8,4]",
    ),
    "embed_of_integers": (
        "QEmbedLayerNormalization",
        "i2,3 i2,3 u9,8 u6,8 u2,8 u8 u8 i2,3 f f f f f u u u u u",
        {},
        "f32[2,3,8] i32[2]",
    ),
    "embed": (
        "EmbedLayerNormalization",
        "i2,3 i2,3 f9,8 f6,8 f2,8 f8 f8",
        {},
        "f32[2,3,8] i32[2] f32[2,3,8]",
    ),
    "attention_with_past": (
        "Attention",
        "f2,3,8 f8,24 f24 - f2,2,2,5,4",
        {**ATTENTION, "unidirectional": 1},
        "f32[2,3,8] f32[2,2,2,8,4]",
    ),
    "packed_heads": (
        "MultiHeadAttention",
        "f2,3,2,3,4",
        ATTENTION,
        "f32[2,3,8]",
    ),
    "packed_keys": (
        "MultiHeadAttention",
        "f2,3,8 f2,5,2,2,4",
        ATTENTION,
        "f32[2,3,8]",
    ),
    "skip_norm": (
        "SkipLayerNormalization",
        "f2,3,8 f2,3,8 f8 f8",
        {},
        "f32[2,3,8] - - f32[2,3,8]",
    ),
    "fused_conv": (
        "FusedConv",
        "f2,6,8,8 f4,6,3,3 f4 f2,4,4,4",
        {**WINDOW, "activation": "Relu"},
        "f32[2,4,4,4]",
    ),
    "fused_conv_clip": (
        "FusedConv",
        "f2,6,8,8 f4,6,3,3 f4",
        {**WINDOW, "activation": "Clip", "activation_params": [0.0, 6.0]},
        "f32[2,4,4,4]",
    ),
    "fused_gemm": (
        "FusedGemm",
        "f3,2 f5,3 f5",
        {"transA": 1, "transB": 1, "activation": "Sigmoid"},
        "f32[2,5]",
    ),
    "fused_matmul_batch": (
        "FusedMatMul",
        "f3,2,4 f5,2,4",
        {"transB": 1, "transBatchA": 1, "transBatchB": 1, "alpha": 0.5},
        "f32[2,3,5]",
    ),
    "nhwc_pool": ("NhwcMaxPool", "u2,8,8,6", WINDOW, "u8[2,4,4,6]"),
    "nhwc_conv": ("NhwcConv", f"{NHWC} f4,6,3,3 f4", WINDOW, "f32[2,4,4,4]"),
    "nhwc_fused_conv": (
        "NhwcFusedConv",
        f"{NHWC} f4,6,3,3 f4 f2,4,4,4",
        {**WINDOW, "activation": "Relu"},
        "f32[2,4,4,4]",
    ),
    "bias_add": ("BiasAdd", "f2,9,6 f6 f2,9,6", {}, "f32[2,9,6]"),
    "bias_split_gelu": ("BiasSplitGelu", "f2,9,8 f8", {}, "f32[2,9,4]"),
    "bias_softmax": (
        "BiasSoftmax",
        "f2,3,5 f1,3,5",
        {"axis": 2, "is_inner_broadcast": 1},
        "f32[2,3,5]",
    ),
    "group_norm": (
        "GroupNorm",
        f"{NHWC} f6 f6",
        {"groups": 2, "activation": 1},
        "f32[2,8,8,6]",
    ),
    "skip_group_norm": (
        "SkipGroupNorm",
        f"{NHWC} f6 f6 f2,6 f6",
        {"groups": 3, "activation": 0},
        "f32[2,8,8,6] f32[2,8,8,6]",
    ),
}
"""Op, operands (dtype and shape; `-` for none), attributes, types of the results."""

NOT_ON_A_CPU = frozenset(
    {
        *("bias_add", "bias_split_gelu", "group_norm", "skip_group_norm"),
        *("nhwc_conv", "nhwc_fused_conv", "bias_softmax", "packed_heads"),
        *("packed_keys", "reduce_mean"),
    }
)
"""Cases that onnxruntime has no kernel for on a CPU."""


def _operands(text: str) -> list[Array | None]:
    rng = np.random.default_rng(0)
    return [None if part == "-" else _array(part, rng) for part in text.split()]


def _array(part: str, rng: np.random.Generator) -> Array:
    shape = tuple(map(int, filter(None, part[1:].split(","))))
    if part[0] in "fh":
        return rng.uniform(0.5, 1, shape).astype(_DTYPES[part[0]])
    return np.asarray(rng.integers(1, 2, shape)).astype(_DTYPES[part[0]])


def _model(name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Make a model of one node; scales, zero points and weights are stored."""
    op, text, attributes, types = CASES[name]
    operands = _operands(text)
    names = ["" if x is None else f"x{i}" for i, x in enumerate(operands)]
    arrays = {n: x for n, x in zip(names, operands, strict=True) if x is not None}
    wanted = ["" if t == "-" else f"y{i}" for i, t in enumerate(types.split())]
    node = helper.make_node(op, names, wanted, "n", domain=MICROSOFT, **attributes)
    given = {n: arrays[n] for n in arrays if n in {"x0", "x2"} and arrays[n].ndim > 1}
    stored = [numpy_helper.from_array(arrays[n], n) for n in arrays if n not in given]
    inputs = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for n, x in given.items()
    ]
    results = [onnx.ValueInfoProto(name=n) for n in wanted if n]
    graph = helper.make_graph([node], "test", inputs, results, stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


def _front(model: onnx.ModelProto, folder: Path) -> Graph:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    program = OnnxFrontend().load(path)
    PassManager((ShapeInference(), FoldShapes()), (VerifyEach(),)).run(program)
    graph = program.classes[0].ops
    assert graph is not None
    return graph


@pytest.mark.parametrize("name", CASES)
def test_types_of_the_results(name: str, tmp_path: Path) -> None:
    """Results have the stated types, and no op is unknown."""
    types = [t for t in CASES[name][3].split() if t != "-"]

    graph = _front(_model(name)[0], tmp_path)

    assert types == [str(value.type) for value in graph.outputs]
    assert "unknown" not in {node.op for node in graph}


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_ON_A_CPU))
def test_types_are_those_that_onnxruntime_computes(name: str) -> None:
    """The stated types are those of the arrays that onnxruntime returns."""
    pytest.importorskip("onnxruntime", reason="the reference run needs onnxruntime")
    short = {"float32": "f32", "uint8": "u8", "int32": "i32"}
    model, inputs = _model(name)

    actual = [
        f"{short[array.dtype.name]}[{','.join(map(str, array.shape))}]"
        for array in run_reference(model, inputs).values()
    ]

    assert [t for t in CASES[name][3].split() if t != "-"] == actual


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("gemm", 2 * 2 * 3 * 5),
        ("matmul_to_float", 2 * 8 * 3 * 5),
        ("four_bits", 2 * 6 * 64 * 32),
        ("conv_nhwc", 2 * (2 * 4 * 4 * 4) * 6 * 9),
    ],
)
def test_flops_are_those_of_the_matmul(name: str, flops: int, tmp_path: Path) -> None:
    """Scales, zero points and other layouts add nothing."""
    graph = _front(_model(name)[0], tmp_path)

    assert flops == sum(_work(node).flops for node in graph)


@pytest.mark.parametrize(("name", "bits"), [("four_bits", 4), ("eight_bits", 8)])
def test_packed_weights_are_read_as_they_are_stored(
    name: str, bits: int, tmp_path: Path
) -> None:
    """A matmul reads its input, the bits of the weight, and floats beside it."""
    graph = _front(_model(name)[0], tmp_path)
    (node,) = [node for node in graph if node.op == "packed_linear"]
    floats = sum(v.type.numel for v in node.operands[2:] if v.type)

    assert 4 * 2 * 3 * 64 + 64 * 32 * bits // 8 + 4 * floats == _work(node).bytes_read


def _work(node: Node) -> Work:
    operands = [value.type for value in node.operands if value.type is not None]
    results = [value.type for value in node.results if value.type is not None]
    return BUILTIN_OPS[node.op].work(node.attributes, operands, results)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("fused_gemm", {"activation": "Unheard"}),
        ("bias_softmax", {"is_inner_broadcast": 0}),
        ("attention_with_past", {"past_present_share_buffer": 1}),
        ("four_bits", {"K": 0}),
    ],
)
def test_what_is_not_known_stays_unknown(
    name: str, attributes: dict[str, Any], tmp_path: Path
) -> None:
    """An attribute that changes what is computed is not passed over."""
    model, _ = _model(name)
    node = model.graph.node[0]
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())

    graph = OnnxFrontend().load(path).classes[0].ops

    assert graph is not None
    assert [f"{MICROSOFT}::{node.op_type}"] == [
        other.attributes.text("op") for other in graph if other.op == "unknown"
    ]
