"""Attention that is spelled out, as `torch.compile` leaves it."""

from __future__ import annotations

import pytest

import perfc
from perfc.passes.lowering.eager.attention.patterns import has_pattern, without_loops

SIZES = "layers=1,hidden=64,heads=4,seq=32,vocab=101,attention=eager"
Q, V = "matmul(q, k)", "matmul(s, v)"


@pytest.mark.parametrize(
    ("calls", "math", "fused"),
    [
        ((Q, "mul(s)", "softmax(s)", V), "bf16", True),
        ((Q, "div(s)", "softmax(s)", V), "fp16", True),
        ((Q, "softmax(s)", V), "tf32", True),
        ((Q, "div(s)", "add(s, m)", "softmax(s)", V), "bf16", True),
        ((Q, "add(s, m)", "softmax(s)", V), "bf16", True),
        (("mul(q)", "mul(k)", Q, "add(s, m)", "softmax(s)", V), "bf16", True),
        ((Q, "mul(s)", "add(s, m)", "softmax(s)", V), "bf16", False),
        ((Q, "mul(s)", "where(s, m)", "softmax(s)", V), "bf16", False),
        ((Q, "div(s)", "softmax(s)", V), "fp32", False),
        ((Q, "div(s)", "softmax(s)", V), "fp64", False),
    ],
)
def test_patterns(calls: tuple[str, ...], math: str, fused: bool) -> None:
    """Inductor knows scaled scores, and masks where scores are divided by the scale."""
    assert fused == has_pattern(calls, math)


def test_what_is_left() -> None:
    """What is done to scores one by one is computed where the softmax reads them."""
    calls = (Q, "mul(s)", "add(s, m)", "softmax(s)", V)

    assert (Q, "softmax(s)", V) == without_loops(calls)


@pytest.mark.parametrize(("runtime", "loops"), [("eager", 2), ("compiled", 0)])
def test_kernels(runtime: str, loops: int) -> None:
    """A causal mask after a product has no pattern: the GEMMs stay."""
    model = perfc.load(f"gpt2:{SIZES}", batch=4)
    report = perfc.analyze(model, "a100", runtime=runtime, dtype="bf16")
    graph = report.results.hosted[0].graph
    found = [
        graph.kernels[kernel].op
        for op, kernel in zip(graph.op, graph.kernel, strict=True)
        if kernel >= 0 and "attn.attention" in graph.ops[op].node
    ]
    first = found.index("gemm")

    assert ["gemm", *["elementwise"] * loops, "softmax"] == found[
        first : first + 2 + loops
    ]
    assert 2 == found.count("gemm")
