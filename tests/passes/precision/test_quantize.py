"""Tables and linear layers in fewer bits: what is stored, converted, and kept."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfc
from perfc import Model, PerfcError
from perfc.ir import Graph, UsageError, Value
from perfc.ir.support import UnsupportedModelError
from perfc.ir.text import parse_program
from perfc.ir.text.printer import print_graph
from perfc.passes.graphs import typed
from perfc.passes.precision import LINEAR_TYPES, TABLE_TYPES, FuseQdq, Quantize
from perfc.passes.precision.stored_types import row_type
from perfc.tools.models.model import prepare

NAME = "dlrm-ddp:tables=2,rows=1000"


@pytest.fixture(scope="module")
def plain() -> Model:
    """Return the model as it is."""
    return perfc.load(NAME, batch=64)


def graph_of(model: Model) -> Graph:
    """Return the one graph of a model."""
    graph = model.program.classes[0].ops
    assert graph is not None
    return graph


def ops(model: Model) -> Counter[str]:
    """Return how often each op is there."""
    return Counter(node.op for node in graph_of(model))


def dtypes(model: Model) -> dict[str, str]:
    """Return the types of weights."""
    parameters: list[Value] = graph_of(model).parameters
    return {value.name: str(typed(value).dtype) for value in parameters}


SHARES = {128: 0.1328125, 64: 0.140625, 8: 0.25}
"""Of int4 rows over those of fp32, by columns (Guan et al., arXiv 1911.02079)."""


@pytest.mark.parametrize("columns", SHARES)
def test_published_shares(columns: int) -> None:
    """Rows of four bits take what was published."""
    narrow = row_type("int4", "caffe2").row_bytes(columns)

    assert SHARES[columns] == narrow / row_type("fp32").row_bytes(columns)


@given(st.integers(1, 3000))
def test_row_bytes(columns: int) -> None:
    """Odd widths are filled up to whole bytes, and to 16 bytes on a GPU."""
    exact = {
        "fp32": 4 * columns,
        "fp16": 2 * columns,
        "bf16": 2 * columns,
        "fp8": columns,
        "int8": columns + 8,
        "int4": -(-columns // 2) + 4,
        "int4-codebook": -(-columns // 2) + 32,
        "int2": -(-columns // 4) + 4,
    }
    on_gpu = exact | {"int8": columns + 4}

    assert exact.keys() == set(TABLE_TYPES)
    for name, size in exact.items():
        assert size == row_type(name, "caffe2").row_bytes(columns)
        plain = name in {"fp32", "fp16", "bf16"}
        filled = on_gpu[name] if plain else -(-on_gpu[name] // 16) * 16
        assert filled == row_type(name, "fbgemm").row_bytes(columns)


@pytest.mark.parametrize("keep", ["*:fp32", "emb_l,bot_l,top_l:fp32"])
def test_everything_kept_is_the_original(plain: Model, keep: str) -> None:
    """Text for text."""
    kept = plain.rewritten(Quantize(embeddings="int8", linear="int8", keep=keep))

    assert print_graph(graph_of(plain)) == print_graph(graph_of(kept))


def test_a_type_that_is_no_narrower_changes_nothing() -> None:
    """A model of 16 bits stays one."""
    model = perfc.load(NAME, batch=64, dtype="bf16")
    same = model.rewritten(Quantize(embeddings="fp16", linear="bf16"))

    assert print_graph(graph_of(model)) == print_graph(graph_of(same))


def test_neighbours_convert_once(plain: Model) -> None:
    """Each stack converts what enters it; products write what the next one reads."""
    static = plain.rewritten(Quantize(linear="int8"))
    products = [node for node in graph_of(static) if node.op == "matmul"]
    written = [typed(node.results[0]).dtype.name for node in products]

    assert 2 == ops(static)["quantize"]
    assert 0 == ops(static)["dequantize"] + ops(static)["cast"]
    assert ["i8", "i8", "f32", "f32", "i8", "i8", "i8", "i8", "f32"] == written


@pytest.mark.parametrize(
    ("activations", "made"),
    [
        ("dynamic", {"dynamic_quantize": 8, "quantize": 0, "amax": 0}),
        ("dynamic-tensor", {"dynamic_quantize": 0, "quantize": 8, "amax": 8}),
    ],
)
def test_scales_that_are_found(
    plain: Model, activations: str, made: dict[str, int]
) -> None:
    """What is only known as the model runs is converted at each layer."""
    found = ops(plain.rewritten(Quantize(linear="int8", activations=activations)))

    assert made == {op: found[op] for op in made}


@pytest.mark.parametrize("linear", sorted(LINEAR_TYPES))
@pytest.mark.parametrize("runtime", ["eager", "compiled", "cudagraph"])
def test_every_type_is_priced(plain: Model, linear: str, runtime: str) -> None:
    """With no op that is not known, where the device has it."""
    made = plain.rewritten(Quantize(linear=linear, activations="dynamic"))
    report = perfc.analyze(made, "b200", runtime=runtime)

    assert {} == report.coverage["unknown_ops"]
    assert report.time_us > 0


@pytest.mark.parametrize("embeddings", TABLE_TYPES)
def test_parameters_are_what_is_stored(plain: Model, embeddings: str) -> None:
    """Memory counts rows with their scales, and nothing else changes."""
    made = plain.rewritten(Quantize(embeddings=embeddings))
    stored = 2 * 1000 * row_type(embeddings).row_bytes(128)
    before, after = (
        perfc.analyze(m, "a100").memory["parameters_bytes"] for m in (plain, made)
    )

    fewer = 2 * 1000 * 512 - stored

    assert before - after == pytest.approx(fewer, abs=2 * 512)  # blocks of memory


def test_a_lookup_reads_what_rows_take() -> None:
    """Time falls with bits where bytes bind, and by no more than bytes do."""
    model = perfc.load("dlrm-ddp:tables=2,rows=4000000", batch=65536)
    times: dict[str, float] = {}
    for name in ("fp32", "fp16", "int8", "int4"):
        report = perfc.analyze(model.rewritten(Quantize(embeddings=name)), "a100")
        found = [n for n in report.nodes if n["op"] == "aten::embedding_bag"]
        times[name] = sum(node["duration_us"] for node in found)

    assert times["fp32"] > times["fp16"] > times["int8"] > times["int4"]
    assert times["int4"] > times["fp16"] * 80 / 256


def test_a_keep_list(plain: Model) -> None:
    """A pattern without a type has that of the next one; modules are matched, too."""
    keep = "top_l.0,top_l.8:fp16,emb_l.1:fp16,bot_l:fp32"
    found = dtypes(
        plain.rewritten(Quantize(embeddings="int8", linear="int8", keep=keep))
    )

    assert "f16" == found["top_l.0.weight"] == found["emb_l.1.weight"]
    assert "f32" == found["bot_l.2.weight"]
    assert "i8" == found["top_l.2.weight"]
    assert "i8.rowx32a16" == found["emb_l.0.weight"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linear": "int7"}, "'int7' is no type of linear layers; known: fp32"),
        ({"embeddings": "w8a16"}, "'w8a16' is no type of tables"),
        ({"linear": "int8", "keep": "top_l.0"}, "'top_l.0' says no type"),
        ({"linear": "int8", "keep": "top_l.0:int9"}, "expected PATTERN:TYPE"),
        ({"linear": "int8", "keep": "top_l.O:fp16"}, "did you mean top_l"),
        ({"linear": "int8", "keep": "emb_l.0:w8a16"}, "emb_l.0 is a table, whose"),
        ({"linear": "int8", "activations": "none"}, "expected static, dynamic"),
        ({"linear": "int8", "rows": "rows"}, "expected fbgemm, caffe2"),
        ({"linear": "int8", "sum_bits": 8}, "expected 16, 32"),
    ],
)
def test_what_is_refused(plain: Model, options: dict[str, str], message: str) -> None:
    """In one line that says what was expected."""
    with pytest.raises(UsageError, match=message):
        plain.rewritten(Quantize(**options))  # type: ignore[arg-type] # by name


@pytest.mark.parametrize("options", [{"embeddings": "int4"}, {"linear": "w4a16"}])
def test_no_gradients_of_few_bits(options: dict[str, str]) -> None:
    """Neither before nor after the backward pass; those of 16 bits are as ever."""
    quantize = Quantize(**options)  # type: ignore[arg-type] # by name
    with pytest.raises(PerfcError, match="gradients of weights of few bits"):
        perfc.load(NAME, batch=64, mode="training", transforms=[quantize])
    step = perfc.load(NAME, batch=64, mode="training")
    with pytest.raises(PerfcError, match="gradients of weights of few bits"):
        step.rewritten(quantize)


def test_sizes_that_tensor_cores_do_not_take(plain: Model) -> None:
    """They keep their type, and a remark says so; int4 has what stands in for it."""
    made = plain.rewritten(Quantize(linear="fp8"))
    told = {one.where for one in made.program.diagnostics}
    stood_in = plain.rewritten(Quantize(linear="int4"))

    assert {"top_l.0", "top_l.8"} == told
    assert "f32" == dtypes(made)["top_l.8.weight"]
    assert "no-such-rate" in [one.code for one in stood_in.program.diagnostics]


def test_mixed_tables_of_one_lookup() -> None:
    """Each has its own rows."""
    name = f"{NAME},embedding=batched"
    quantize = Quantize(embeddings="int8", keep="emb_l.1:fp16")
    model = perfc.load(name, batch=64, transforms=[quantize])
    report = perfc.analyze(model, "a100")

    assert {"i8.rowx32a16", "f16"} <= set(dtypes(model).values())
    assert report.time_us > 0


def test_single_rows_of_tables() -> None:
    """Tables without bags have rows of their own; tied weights keep their type."""
    model = perfc.load("bert-base:layers=1", batch=2)
    made = model.rewritten(Quantize(embeddings="int8"))
    found = dtypes(made)
    kept = [one.where for one in made.program.diagnostics]
    before, after = (
        {n["id"]: n["bytes"] for n in perfc.analyze(m, "h100").nodes}
        for m in (model, made)
    )
    name = "bert.embeddings.position_embeddings"
    (lookup,) = [each for each in before if each.startswith(f"{name}.")]

    assert "i8.rowx32a16" == found[f"{name}.weight"]
    assert ["bert.embeddings.word_embeddings"] == kept
    assert after[lookup] < before[lookup]


_PAIR = """graph @g(
  %x: f32[2048,1024], param %w: i8[1024,1024], param %s: f32[1024]
) {{
  %one = constant() {{dtype = !f32, shape = [], value = 0.1}} : f32[]
  %q = quantize(%x, %one) {{dtype = !i8}} : i8[2048,1024]
  %a = dequantize(%q, %one) : f32[2048,1024]
  %b = dequantize(%w, %s) {{axis = {axis}}} : f32[1024,1024]
  %y = matmul(%a, %b) : f32[2048,1024]
  %r = relu(%y) : f32[2048,1024]
  %z = quantize(%r, %one) {{dtype = !i8}} : i8[2048,1024]
  return %{returned}
}}"""
_INTEGERS = """graph @g(%x: i8[2048,1024], param %w: i8[1024,1024]) {
  %y = matmul(%x, %w) {dtype = !i32} : i32[2048,1024]
  return %y
}"""


def pair(axis: int = 1, returned: str = "z") -> Model:
    """Return a product of two dequantised operands, quantised again."""
    return prepare(parse_program(_PAIR.format(axis=axis, returned=returned)))


def test_pairs_become_one_product() -> None:
    """It writes what is quantised behind it, after a relu as well."""
    fused = pair().rewritten(FuseQdq())

    assert {"constant": 1, "quantize": 1, "matmul": 1, "relu": 1} == ops(fused)
    assert "i8" == typed(graph_of(fused).value("r")).dtype.name


def test_scales_that_no_product_undoes() -> None:
    """Scales along the sums stay where they are."""
    model = pair(axis=0)
    stays = model.rewritten(FuseQdq())

    assert ops(model) == ops(stays)
    assert ["no-qdq"] == [one.code for one in stays.program.diagnostics]


@pytest.mark.parametrize(
    "target", ["a100", "h100", "v100", "p100", "t4", "l40s", "cpu", "mi250"]
)
@pytest.mark.parametrize("returned", ["y", "z"])
def test_fused_is_never_slower(target: str, returned: str) -> None:
    """Where the result stays wide, and where it is quantised again."""
    model = pair(returned=returned)
    before, after = (
        perfc.analyze(each, target, inputs="device")
        for each in (model, model.rewritten(FuseQdq()))
    )

    assert after.time_us <= before.time_us


@pytest.mark.parametrize("target", ["a100", "h100", "l40s", "cpu"])
def test_fused_is_a_product_of_integers(target: str) -> None:
    """It takes what one that is written as such does, within 15 percent."""
    integers = prepare(parse_program(_INTEGERS))
    fused, whole = (
        perfc.analyze(model, target, inputs="device")
        for model in (pair(returned="y").rewritten(FuseQdq()), integers)
    )
    times = [
        next(n["duration_us"] for n in report.nodes if n["id"] == "y")
        for report in (fused, whole)
    ]

    assert times[0] == pytest.approx(times[1], rel=0.15)


def test_what_compiles_fuses() -> None:
    """Eager says what that would save."""
    eager = perfc.analyze(pair(), "a100", inputs="device")
    compiled = perfc.analyze(pair(), "a100", inputs="device", runtime="compiled")
    (remark,) = [one for one in eager.diagnostics if one.code == "unfused-qdq"]

    assert "1 product is priced as written" in remark.message
    assert "they would save" in remark.message
    assert "unfused-qdq" not in {one.code for one in compiled.diagnostics}
    assert "fuse-qdq" in compiled.pipeline


def test_eight_bit_floats_where_there_are_none() -> None:
    """A device without them is refused in one line."""
    model = perfc.load(NAME, batch=64, transforms=[Quantize(linear="fp8")])
    with pytest.raises(PerfcError, match="no math mode 'fp8'"):
        perfc.analyze(model, "a100")
    with pytest.raises(UnsupportedModelError, match="no fp8 GEMMs, which fp8 needs"):
        perfc.analyze(NAME, "a100", batch=64, dtype="fp8")


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        ("fp8", "h100"),
        ("mxfp8", "b200"),
        ("int8", "t4"),
        ("w8a16", "v100"),
        ("w4a16", "l4"),
    ],
)
def test_types_to_compute_in(dtype: str, target: str) -> None:
    """A report says what was asked for; a loaded model is converted alike."""
    small = "gpt2:layers=1,hidden=64,heads=4,seq=32,vocab=503"
    report = perfc.analyze(small, target, batch=2, dtype=dtype)
    again = perfc.analyze(perfc.load(small, batch=2), target, dtype=dtype)

    assert dtype == report.dtype
    assert report.time_us == again.time_us


def test_the_newest_tensor_cores() -> None:
    """Blocks of 32 are scaled by Blackwell alone."""
    with pytest.raises(UnsupportedModelError, match="no scaled blocks of 32"):
        perfc.analyze(NAME, "h100", batch=64, dtype="mxfp8")


def test_other_rewrites_of_narrow_types_are_refused() -> None:
    """Integers have no gradients."""
    with pytest.raises(UsageError, match="gradients of weights of few bits"):
        perfc.load(NAME, batch=64, mode="training", dtype="int8")


_WEIGHT = """
graph @weights(%x: f16[64,256], param %w: i8[256,512], param %s: f16[512]) {
  %wide = dequantize(%w, %s) {axis = 1} : f16[256,512]
  %y = matmul(%x, %wide) : f16[64,512]
  return %y
}
"""


@pytest.mark.parametrize("runtime", ["eager", "compiled"])
def test_weights_that_are_dequantised_apart(runtime: str) -> None:
    """A report says what that takes, which a product that unpacks would save."""
    model = prepare(parse_program(_WEIGHT))
    report = perfc.analyze(model, "a100", runtime=runtime)
    (remark,) = [d for d in report.diagnostics if d.code == "weights-dequantized-apart"]
    (taken,) = [n["duration_us"] for n in report.nodes if n["id"] == "wide"]

    assert f"take {taken:,.1f} us of {report.time_us:,.1f} us" in remark.message
    assert "1 weight of few bits is dequantized" in remark.message


def test_pairs_are_told_once() -> None:
    """A product of two operands of 8 bits has the remark on those alone."""
    codes = {d.code for d in perfc.analyze(pair(), "a100").diagnostics}

    assert "unfused-qdq" in codes
    assert not codes & {"weights-dequantized-apart", "activations-quantized-apart"}


@pytest.mark.parametrize("linear", ["fp8", "mxfp8"])
def test_scales_and_numbers_are_one_kernel(plain: Model, linear: str) -> None:
    """A compiler finds the scale of a row, or a block, where it converts it."""
    model = plain.rewritten(Quantize(linear=linear, activations="dynamic"))
    report = perfc.analyze(model, "b200", runtime="compiled")
    kernels = [n["op"] for n in report.nodes if "dynamic_quantize" in n["op"]]

    assert kernels
    assert ops(model)["dynamic_quantize"] >= len(kernels)
    assert all(kernel.startswith(("triton_per", "triton_red")) for kernel in kernels)


_LAYER = """
graph @layer(%x: f16[{rows},8192], param %w: f16[8192,8192]) {{
  %y = linear(%x, %w) : f16[{rows},8192]
  return %y
}}
"""


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("target", ["a100", "h100", "l40s"])
def test_few_rows_are_read_faster_in_fewer_bits(rows: int, target: str) -> None:
    """Bytes of a weight bind: time falls with bits, that of the cast counted."""
    model = prepare(parse_program(_LAYER.format(rows=rows)))
    whole, *narrow = (
        perfc.analyze(made, target, inputs="device").summary["gpu_active_us"]
        for made in (
            model,
            *(model.rewritten(Quantize(linear=t)) for t in ("int8", "w8a16", "w4a16")),
        )
    )
    eight, weights, four = narrow

    assert four < min(eight, weights) <= max(eight, weights) < whole
