"""Training in 8-bit floats: which products, and what converts for them."""

from __future__ import annotations

from collections import Counter

import pytest

import perfc
from perfc import Model
from perfc.ir import Graph, UsageError
from perfc.passes.graphs import typed
from perfc.passes.precision import TrainFp8

SMALL = "gpt2:layers=1,hidden=64,heads=4,seq=32,vocab=512"
_LINEARS = 5
"""Four of a layer, and the head, whose vocabulary is a multiple of 16."""


def graph_of(model: Model) -> Graph:
    """Return the one graph of a model."""
    graph = model.program.classes[0].ops
    assert graph is not None
    return graph


def trained(scaling: str) -> Model:
    """Return a training step in bf16, and 8 bits where that pays."""
    return perfc.load(
        SMALL, batch=4, mode="training", dtype="bf16", transforms=[TrainFp8(scaling)]
    )


@pytest.mark.parametrize("scaling", ["delayed", "current", "block"])
def test_three_products_a_layer(scaling: str) -> None:
    """Of the result, the input's gradient and the weight's, each of 8 bits."""
    graph = graph_of(trained(scaling))
    narrow = [
        node
        for node in graph
        if node.op == "matmul" and typed(node.operands[0]).dtype.bits == 8
    ]
    phases = Counter(node.location.phase for node in narrow)

    assert {"forward": _LINEARS, "backward": 2 * _LINEARS} == phases
    assert {"bf16"} == {typed(node.results[0]).dtype.name for node in narrow}


def test_what_converts() -> None:
    """Inputs and weights to e4m3, gradients to e5m2, each once and both ways."""
    graph = graph_of(trained("delayed"))
    casts = [node for node in graph if node.op == "quantize"]
    found = Counter(typed(node.results[0]).dtype.name for node in casts)

    assert {"f8e4m3": 2 * _LINEARS, "f8e5m2": _LINEARS} == found
    assert all(node.attributes.flag("transposed") for node in casts)
    assert (1024, 3 * _LINEARS) == typed(graph.value("fp8.amax_history")).shape


def test_scales_of_this_step_take_a_kernel_more() -> None:
    """One finds the largest number before each conversion."""
    assert 3 * _LINEARS == sum(
        node.op == "amax" for node in graph_of(trained("current"))
    )


def test_a_step_is_priced() -> None:
    """No op of it is unknown, and large layers gain."""
    large = "gpt2:layers=2,hidden=4096,heads=32,seq=1024,vocab=512"
    reports = {
        dtype: perfc.analyze(
            large, "h100", batch=4, mode="training", dtype=dtype, optimizer="sgd"
        )
        for dtype in ("bf16", "fp8")
    }

    assert {} == reports["fp8"].coverage["unknown_ops"]
    assert reports["fp8"].time_us < reports["bf16"].time_us


def test_what_is_refused() -> None:
    """A scaling that there is not, and a graph without a backward pass."""
    with pytest.raises(UsageError, match="expected delayed, current, block"):
        TrainFp8("none")
    with pytest.raises(UsageError, match="is for training"):
        perfc.load(SMALL, batch=4, transforms=[TrainFp8()])
