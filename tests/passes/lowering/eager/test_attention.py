"""What eager PyTorch launches for attention, norms and what sources spell out."""

from __future__ import annotations

import pytest
from tests.passes.lowered import kernels, launched, lower, names, one_op, record

from perfc.ir import UsageError
from perfc.ir.support import VerifyError
from perfc.passes import LowerKernels

HALF = "%q: f16[2,8,64,32], %k: f16[2,8,64,32], %v: f16[2,8,64,32]"
FULL = HALF.replace("f16", "f32")
GROUPED = FULL.replace("%k: f32[2,8", "%k: f32[2,2").replace(
    "%v: f32[2,8", "%v: f32[2,2"
)
CALLS = (
    'spelled_out = ["matmul(q, k)", "div(s)", "add(s, m)", "softmax(s)", '
    '"matmul(s, v)"]'
)


@pytest.mark.parametrize(
    ("arguments", "algorithm"), [(HALF, "flash"), (FULL, "efficient")]
)
def test_attention_is_one_kernel(arguments: str, algorithm: str) -> None:
    """Half precision runs flash attention, fp32 the memory-efficient kernel."""
    graph = lower(one_op(arguments, "attention(%q, %k, %v) {causal = true}"))
    (kernel,) = kernels(graph)

    sizes = record(batch=2, heads=8, q_len=64, kv_len=64, head_dim=32, causal=True)
    assert sizes.updated(algorithm=algorithm) == kernel.params
    assert 2 * 2 * 2 * 8 * 64 * 64 * 32 == kernel.work.flops


@pytest.mark.parametrize("asked", ["flash-1", "flash-2", "cudnn", "efficient"])
def test_attention_runs_by_the_kernels_asked_for(asked: str) -> None:
    """In half precision; fp32 has no flash kernel and runs as PyTorch runs it."""
    asking = LowerKernels(inputs="device", attention=asked)
    half, full = (
        kernels(lower(one_op(arguments, "attention(%q, %k, %v)"), asking))[0]
        for arguments in (HALF, FULL)
    )

    assert asked == half.params["algorithm"]
    assert "efficient" == full.params["algorithm"]


def test_attention_by_gemms() -> None:
    """Queries and keys are scaled, multiplied, and each step is a kernel."""
    text = one_op(HALF, "attention(%q, %k, %v)")
    graph = lower(text, LowerKernels(inputs="device", attention="math"))

    name = "aten::scaled_dot_product_attention"
    kinds = ["elementwise", "elementwise", "gemm", "softmax", "gemm"]
    assert {name: kinds} == launched(graph)


def test_attention_by_kernels_that_there_are_not() -> None:
    """The option names those that there are."""
    with pytest.raises(UsageError, match="attention='flash' of lower-kernels"):
        LowerKernels(attention="flash")


def test_flash_takes_no_mask() -> None:
    """A mask goes to the memory-efficient kernel."""
    text = one_op(f"{HALF}, %m: f16[64,64]", "attention(%q, %k, %v, %m)")

    assert "efficient" == kernels(lower(text))[0].params["algorithm"]


def test_grouped_queries_without_flash() -> None:
    """The memory-efficient kernel has no grouped queries: heads are copied first."""
    graph = lower(one_op(GROUPED, "attention(%q, %k, %v)"))

    name = "aten::scaled_dot_product_attention"
    kinds = [*["elementwise"] * 4, "gemm", "softmax", "gemm"]
    assert {name: kinds} == launched(graph)


def test_grouped_queries_in_flash() -> None:
    """Flash attention shares the heads of keys and values."""
    graph = lower(one_op(GROUPED.replace("f32", "f16"), "attention(%q, %k, %v)"))
    (kernel,) = kernels(graph)

    assert (8, 2) == (kernel.params["heads"], kernel.params["kv_heads"])


def test_spelled_out_attention_is_launched_call_by_call() -> None:
    """What the source spells out is launched as such, each call an op of its own."""
    node = f"attention(%q, %k, %v, %m) {{{CALLS}}}"
    graph = lower(one_op(f"{FULL}, %m: f32[2,1,1,64]", node))

    ops = ["aten::matmul", "aten::div", "aten::add", "aten::softmax", "aten::matmul"]
    assert ops == names(graph)
    scores = 2 * 8 * 64 * 64 * 4
    mask = 2 * 64 * 4
    gemm, scaled, masked, softmax, _ = kernels(graph)
    assert (2 * 8, 64, 64, 32) == tuple(gemm.params[n] for n in "bmnk")
    assert (2 * scores, 2 * scores + mask) == (scaled.work.bytes, masked.work.bytes)
    assert 2 * scores == softmax.work.bytes


def test_grouped_queries_spelled_out() -> None:
    """GEMMs have no grouped queries either: heads are copied before them."""
    node = f"attention(%q, %k, %v, %m) {{{CALLS}}}"
    graph = lower(one_op(f"{GROUPED}, %m: f32[64,64]", node))

    assert [*["elementwise"] * 2, "gemm", *["elementwise"] * 2, "softmax", "gemm"] == (
        [kernel.op for kernel in kernels(graph)]
    )


def test_a_mask_may_end_with_what_the_cache_holds() -> None:
    """One of fewer keys hides those behind; one of more is refused."""
    node = "attention(%q, %k, %v, %m)"
    (kernel,) = kernels(lower(one_op(f"{FULL}, %m: f32[64,48]", node)))

    assert 64 == kernel.params["kv_len"]
    with pytest.raises(VerifyError, match="cannot broadcast 64 with 80"):
        lower(one_op(f"{FULL}, %m: f32[64,80]", node))


def test_spelled_out_may_be_fused() -> None:
    """An option asks what the one call of PyTorch would take instead."""
    text = one_op(f"{FULL}, %m: f32[2,1,1,64]", f"attention(%q, %k, %v) {{{CALLS}}}")
    options = LowerKernels(inputs="device", spelled_out=False)

    assert ["attention"] == [k.op for k in kernels(lower(text, options))]


def test_heads_are_views() -> None:
    """Splitting into heads and joining them again moves nothing."""
    graph = lower("""graph @g(%x: f16[2,64,256]) {
      %a = constant() {dtype = !i64, shape = [4], elements = [2, 64, 8, 32]} : ?
      %b = constant() {dtype = !i64, shape = [3], elements = [2, 64, 256]} : ?
      %h = reshape(%x, %a) : ?
      %q = transpose(%h) {perm = [0, 2, 1, 3]} : ?
      %y = attention(%q, %q, %q) : ?
      %t = transpose(%y) {perm = [0, 2, 1, 3]} : ?
      %z = reshape(%t, %b) : ?
      return %z }""")

    assert ["attention"] == [kernel.op for kernel in kernels(graph)]


def test_gemms_copy_heads() -> None:
    """`matmul` on heads in place copies them: BLAS has one stride per batch."""
    graph = lower("""graph @g(%x: f32[2,64,8,32], %y: f32[2,8,32,64]) {
      %q = transpose(%x) {perm = [0, 2, 1, 3]} : ?
      %s = matmul(%q, %y) : ?
      return %s }""")

    assert ["elementwise", "gemm"] == launched(graph)["aten::matmul"]


def test_rms_norm_is_one_kernel() -> None:
    """`rms_norm` is fused, and priced as a layer norm."""
    (kernel,) = kernels(lower(one_op("%x: f32[8,64]", "rms_norm(%x) {axis = -1}")))

    assert ("layer_norm", "rms") == (kernel.op, kernel.params["kind"])


def test_spelled_out_norm() -> None:
    """Per-row numbers are small: only the calls on the whole tensor move it."""
    calls = '"pow(x)", "mean(x)", "add(r)", "rsqrt(r)", "mul(x, r)", "mul(x, w)"'
    node = f"rms_norm(%x, %w) {{axis = -1, spelled_out = [{calls}]}}"
    graph = lower(one_op("%x: f32[8,64], param %w: f32[64]", node))

    ops = ["pow", "mean", "add", "rsqrt", "mul", "mul"]
    assert [f"aten::{op}" for op in ops] == names(graph)
    full, row, weight = 8 * 64 * 4, 8 * 4, 64 * 4
    moved = [2 * full, full + row, 2 * row, 2 * row, 2 * full + row, 2 * full + weight]
    assert moved == [kernel.work.bytes for kernel in kernels(graph)]


def test_group_norm() -> None:
    """Moments, the factors made of them, and one product."""
    arguments = "%x: f32[2,8,16], param %w: f32[8], param %b: f32[8]"
    graph = lower(one_op(arguments, "group_norm(%x, %w, %b) {groups = 2}"))

    assert {"aten::group_norm": ["reduction", *["elementwise"] * 2]} == launched(graph)
    assert (4, 64) == tuple(kernels(graph)[0].params[n] for n in ("rows", "cols"))


def test_instance_norm() -> None:
    """A group per channel is a batch norm with its own statistics."""
    arguments = "%x: f32[2,8,16], param %w: f32[8], param %b: f32[8]"
    graph = lower(one_op(arguments, "group_norm(%x, %w, %b) {groups = 8}"))

    kinds = ["elementwise", "elementwise", "batch_norm"]
    assert {"aten::instance_norm": kinds} == launched(graph)


def test_rotary() -> None:
    """The rotation is one kernel, or the calls that the source spells out."""
    arguments = "%x: f32[2,8,64,32], %c: f32[64,32], %s: f32[64,32]"
    calls = '["mul(x, c)", "neg(h)", "cat(x)", "mul(x, s)", "add(x, x)"]'
    spelled = lower(one_op(arguments, f"rotary(%x, %c, %s) {{spelled_out = {calls}}}"))
    fused = lower(one_op(arguments, "rotary(%x, %c, %s)"))

    ops = ["mul", "neg", "cat", "mul", "add"]
    assert [f"aten::{op}" for op in ops] == names(spelled)
    assert ["elementwise"] == [kernel.op for kernel in kernels(fused)]
