"""A part of a model in another type: casts where values enter and leave it."""

from __future__ import annotations

from typing import Any

import pytest

import perfc
from perfc import Model, PerfcError
from perfc.passes.precision import ConvertDtype

NAME = "dlrm-default:tables=2,rows=1000"


def loaded(where: str, **options: Any) -> Model:
    """Return a model with a part converted."""
    return perfc.load(
        NAME, batch=64, transforms=[ConvertDtype("bf16", where=where)], **options
    )


def types(model: Model) -> dict[str, str]:
    """Return the type of each value."""
    graph = model.program.classes[0].ops
    assert graph is not None
    return {v.name: v.type.dtype.name for v in graph.values() if v.type is not None}


def casts(model: Model) -> list[str]:
    """Return the casts of a model."""
    graph = model.program.classes[0].ops
    assert graph is not None
    return [node.results[0].name for node in graph if node.op == "cast"]


def test_a_module_and_what_enters_and_leaves_it() -> None:
    """Its weights have the type; one cast goes in, one comes out."""
    found = types(loaded("bot_l.2"))

    assert found["bot_l.2.weight"] == "bf16"
    assert found["bot_l.0.weight"] == "f32"
    assert found["bot_l.2.linear"] == "bf16"
    assert ["bot_l.1.relu.bf16", "bot_l.2.linear.f32"] == casts(loaded("bot_l.2"))


def test_neighbours_are_not_cast_between() -> None:
    """Values that stay within the part are not cast."""
    assert ["dense.bf16", "bot_l.3.relu.f32"] == casts(loaded("bot_l*"))


def test_what_a_graph_returns_has_its_type() -> None:
    """The output is what it was."""
    model = loaded("top_l*")
    graph = model.program.classes[0].ops
    assert graph is not None

    assert ["f32"] == [v.type.dtype.name for v in graph.outputs if v.type is not None]


def test_nodes_by_their_names() -> None:
    """A pattern may be of nodes, too."""
    assert types(loaded("bot_l.2.lin*")) == types(loaded("bot_l.2"))


def test_a_training_step_of_it() -> None:
    """Gradients go through the casts, and weights of the part are updated in it."""
    model = loaded("bot_l.2", mode="training")
    found = types(model)
    report = perfc.analyze(model, "a100")

    assert found["bot_l.2.weight"] == "bf16"
    assert model.dtype == ""
    assert report.time_us > 0
    assert any(
        k.dtype == "bf16" and k.op == "gemm" for k in report.results.graphs[0].kernels
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "no_such*"}, "no such module or node"),
        ({"where": "bot_l*", "autocast": True}, "autocast is of whole models"),
    ],
)
def test_parts_that_cannot_be(options: dict[str, Any], said: str) -> None:
    """One line says why."""
    with pytest.raises(PerfcError, match=said):
        perfc.load(NAME, batch=8, transforms=[ConvertDtype("bf16", **options)])
