"""Calls that quantise, and that multiply what is quantised: one op map for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

import perfc
from perfc.frontends.aten import Argument, AtenBuilder, AtenCall, AtenTensor, Ref
from perfc.ir import DTYPES, Program, TensorType
from perfc.passes.graphs import typed
from perfc.tools.models.model import prepare

ROWS, INPUTS, FEATURES = 64, 256, 512


def _typed(text: str) -> TensorType:
    """Read a type of a tensor: `bf16[64,256]`."""
    name, _, sizes = text.removesuffix("]").partition("[")
    return TensorType(DTYPES[name], tuple(map(int, filter(None, sizes.split(",")))))


def built(
    target: str,
    given: Mapping[str, str],
    results: Sequence[str],
    more: Mapping[str, Argument] | None = None,
) -> Program:
    """Return a program of one call: tensors by the names of its arguments."""
    builder = AtenBuilder("model")
    for name, type_ in given.items():
        builder.input(AtenTensor(name, _typed(type_)))
    made = tuple(AtenTensor(f"y{n}", _typed(t)) for n, t in enumerate(results))
    listed = ("scale_a", "scale_b") if "_v2" in target else ()
    arguments: dict[str, Argument] = {
        name: (Ref(name),) if name in listed else Ref(name) for name in given
    }
    builder.call(AtenCall(target, {**arguments, **(more or {})}, made))
    builder.outputs([tensor.name for tensor in made])
    return builder.program()


X, X8, XI = "bf16[64,256]", "f8e4m3[64,256]", "i8[64,256]"
W8, WI = "f8e4m3[512,256]", "i8[512,256]"
Y = "bf16[64,512]"
_SCALED = {"self": X8, "mat2": "f8e4m3[256,512]", "scale_a": "f32[1]"}
_ROWS = {"XQ": X8, "WQ": W8, "x_scale": "f32[64]", "w_scale": "f32[512]"}
_RANGE: Mapping[str, Argument] = {
    "quant_min": -128,
    "quant_max": 127,
    "eps": 1e-5,
    "dtype": DTYPES["i8"],
}
_BLOCKS: Mapping[str, Argument] = {
    "mapping_type": "SYMMETRIC",
    "block_size": (1, 32),
    "target_dtype": DTYPES["i8"],
}

PRODUCTS: Mapping[str, tuple[Mapping[str, str], Mapping[str, Argument]]] = {
    "aten._int_mm.default": ({"self": XI, "mat2": "i8[256,512]"}, {}),
    "aten._scaled_mm.default": ({**_SCALED, "scale_b": "f32[1]"}, {}),
    "aten._scaled_mm_v2.default": ({**_SCALED, "scale_b": "f32[1]"}, {}),
    "aten._weight_int8pack_mm.default": (
        {"self": X, "mat2": WI, "scales": "bf16[512]"},
        {},
    ),
    "aten._weight_int4pack_mm.default": (
        {"self": X, "mat2": "i32[64,2,32,4]", "qScaleAndZeros": "bf16[2,512,2]"},
        {"qGroupSize": 128},
    ),
    "aten._weight_int4pack_mm_for_cpu.default": (
        {"self": X, "mat2": "u8[512,128]", "qScaleAndZeros": "bf16[2,512,2]"},
        {"qGroupSize": 128},
    ),
    "fbgemm.f8f8bf16_rowwise.default": (_ROWS, {"use_fast_accum": True}),
    "mslk.f8f8bf16_rowwise.default": (_ROWS, {}),
    "fbgemm.i8i8bf16.default": ({"XQ": XI, "WQ": WI}, {"scale": 0.1, "split_k": 1}),
    "fbgemm.bf16i4bf16_rowwise.default": (
        {"X": X, "WQ": "i8[512,128]", "w_scale": "bf16[2,512]"},
        {},
    ),
}
"""What is multiplied, and what a call is given besides."""


@pytest.mark.parametrize("target", PRODUCTS)
def test_products(target: str) -> None:
    """One kernel multiplies, in as many operations as there are; none is unknown."""
    given, more = PRODUCTS[target]
    result = "i32[64,512]" if "_int_mm" in target else Y
    report = perfc.analyze(prepare(built(target, given, [result], more)), "h100")
    flops = {node["op"]: node["flops"] for node in report.nodes if node["flops"]}

    assert {} == report.coverage["unknown_ops"]
    assert [2 * ROWS * INPUTS * FEATURES] == list(flops.values())


_CHOSEN = "quantized_decomposed.choose_qparams"
CONVERSIONS: Mapping[
    str, tuple[Mapping[str, str], list[str], Mapping[str, Argument]]
] = {
    f"{_CHOSEN}.tensor": ({"input": X}, ["f64[1]", "i64[1]"], _RANGE),
    f"{_CHOSEN}_symmetric.tensor": ({"input": X}, ["f64[1]", "i64[1]"], _RANGE),
    f"{_CHOSEN}_per_token.default": ({"input": X}, ["f32[64,1]", "i64[64,1]"], _RANGE),
    f"{_CHOSEN}_per_token_asymmetric.default": (
        {"input": X},
        ["f32[64,1]", "i64[64,1]"],
        _RANGE,
    ),
    "torchao.choose_qparams_affine.default": (
        {"input": X},
        ["f32[64,8]", "i8[64,8]"],
        _BLOCKS,
    ),
    "torchao.choose_scale_float8.default": (
        {"tensor": X},
        ["f32[64,1]"],
        {"block_size": (1, 256)},
    ),
    "torchao.quantize_affine.default": (
        {"input": X, "scale": "f32[64,8]", "zero_point": "i8[64,8]"},
        [XI],
        {"block_size": (1, 32)},
    ),
    "torchao.quantize_affine_float8_non_decomposed.default": (
        {"tensor": X, "scale": "f32[64,1]"},
        [X8],
        {},
    ),
    "fbgemm.quantize_fp8_per_row.default": ({"input": X}, [X8, "f32[64]"], {}),
    "mslk.quantize_fp8_per_tensor.default": ({"input": X}, [X8, "f32[]"], {}),
}
"""What is converted, what comes back, and what a call is given besides."""


@pytest.mark.parametrize("target", CONVERSIONS)
def test_conversions(target: str) -> None:
    """Kernels of known ops read it, and results are as they are declared."""
    given, results, more = CONVERSIONS[target]
    program = built(target, given, results, more)
    graph = program.classes[0].ops
    assert graph is not None
    report = perfc.analyze(prepare(program), "h100")

    assert {} == report.coverage["unknown_ops"]
    assert [*map(_typed, results)] == [typed(value) for value in graph.outputs]
    assert ROWS * INPUTS <= sum(node["bytes"] for node in report.nodes)


@pytest.mark.parametrize(
    ("target", "given", "results", "more", "problem"),
    [
        (
            "torchao.choose_qparams_affine.default",
            {"input": X},
            ["f32[64,8]", "i8[64,8]"],
            {"block_size": (1, 33)},
            "blocks of 33 of 256",
        ),
        (
            "torchao.choose_qparams_affine.default",
            {"input": X},
            ["f32[64,8]", "i8[64,8]"],
            {"block_size": (32,)},
            "blocks of 1 axes",
        ),
        (
            "torchao.quantize_affine.default",
            {"input": X, "scale": "f32[64,7]"},
            [XI],
            {"block_size": (1, 32)},
            "448 scales for 512 blocks",
        ),
        (
            "quantized_decomposed.quantize_per_channel.default",
            {"input": X, "scales": "f32[7]", "zero_points": "i64[7]"},
            [XI],
            {"axis": 0},
            "is of no part of",
        ),
    ],
)
def test_scales_of_the_wrong_shape(
    target: str,
    given: Mapping[str, str],
    results: Sequence[str],
    more: Mapping[str, Argument],
    problem: str,
) -> None:
    """Such a call is an unknown op, and the report says why."""
    program = built(target, given, results, more)

    assert ["unknown-use"] == [one.code for one in program.diagnostics]
    assert problem in program.diagnostics[0].message
