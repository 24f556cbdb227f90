"""Models made again with other transforms are those that are loaded with them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

import perfc
from perfc.ir.text import print_graph
from perfc.passes import Pass
from perfc.passes.pipeline_spec import parse_pipeline
from perfc.passes.pipelines import completed
from perfc.passes.precision import ConvertDtype
from perfc.tools.models import Model

MODELS: dict[str, tuple[str, str]] = {
    "dlrm-default:tables=2,rows=1000": ("inference", "bot_l.0"),
    "dlrm-ddp:tables=2,rows=1000": ("training", "top_l.0"),
    "dlrm-mlperf:rows=100": ("training", "bot_l.2"),
    "gpt2:layers=2": ("training", "transformer.h.0.mlp"),
    "resnet50": ("training", "layer1.0"),
}


def text_of(model: Model) -> list[str]:
    """Return the graphs of a model, and what is said of it."""
    graphs = [print_graph(r.ops) for r in model.program.classes if r.ops is not None]
    said = [str(each) for each in model.program.diagnostics]
    return [*graphs, *said, str(model.passes), model.dtype, str(model.dims)]


def converted(where: str, *dtypes: str) -> Sequence[Pass]:
    """Return passes that convert a part, once for each type."""
    return [ConvertDtype(dtype, where=where) for dtype in dtypes]


def changed(model: Model, passes: Sequence[Pass]) -> Model:
    """Return a model with passes before its backward pass."""

    def change(transforms: Sequence[Pass]) -> Sequence[Pass]:
        training = [p for p in transforms if p.name == "training"]
        others = [p for p in transforms if p.name != "training"]
        return completed([*others, *passes, *training])

    made = model.changed(change)
    assert made is not None
    return made


@pytest.mark.parametrize("name", MODELS)
def test_graphs_are_those_of_a_model_that_is_loaded(name: str) -> None:
    """Node by node, with the same remarks, in one step or in several."""
    mode, part = MODELS[name]
    options: dict[str, Any] = {"batch": 2, "mode": mode}
    model = perfc.load(name, **options)
    before = text_of(model)
    for dtypes in (["bf16"], ["fp16"], ["bf16", "fp16"]):
        passes = converted(part, *dtypes)
        expected = text_of(perfc.load(name, transforms=passes, **options))

        assert expected == text_of(changed(model, passes))
        stepwise = model
        for each in passes:
            stepwise = changed(stepwise, [each])
        assert expected == text_of(stepwise)
    assert before == text_of(model)


def test_what_was_worked_out_is_not_pickled() -> None:
    """A model that was changed is as large as one that was not, and can be changed."""
    options: dict[str, Any] = {"batch": 2, "mode": "training"}
    model = perfc.load("dlrm-ddp:tables=2,rows=1000", **options)
    size = len(pickle.dumps(model))
    made = changed(model, converted("top_l.0", "bf16"))
    again: Model = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own

    assert size == len(pickle.dumps(model))
    assert text_of(made) == text_of(changed(again, converted("top_l.0", "bf16")))


def test_a_refused_transform_leaves_the_model() -> None:
    """One line says what is wrong, and the model can be changed otherwise."""
    model = perfc.load("dlrm-ddp:tables=2,rows=1000", batch=2, mode="training")
    with pytest.raises(perfc.PerfcError, match="no such module or node"):
        changed(model, converted("no_such", "bf16"))
    with pytest.raises(perfc.PerfcError, match="looks up no table"):
        changed(model, parse_pipeline("place-embeddings{tier=uvm,table=no_such}"))

    assert changed(model, converted("top_l.0", "bf16")).batch == 2
