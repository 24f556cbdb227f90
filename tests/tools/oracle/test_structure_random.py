"""Random edits of structure, types, sizes and targets, against fresh analyses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perfc
from perfc import Oracle, PerfcError, edits

CLOSE = 1e-9
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dlrm": ("dlrm-default:tables=3,rows=1000", "a100", {"batch": 64}),
    "cpu": ("dlrm-default:tables=2,rows=1000", "cpu", {"batch": 32}),
    "training": (
        "dlrm-ddp:tables=2,rows=1000",
        "v100",
        {"batch": 64, "mode": "training", "optimizer": "adam"},
    ),
    "sparse": ("dlrm-mlperf:rows=1000", "a100", {"batch": 64, "mode": "training"}),
    "gpt": ("gpt2:layers=1", "h100", {"batch": 2}),
    "gpt-training": ("gpt2:layers=2", "a100", {"batch": 2, "mode": "training"}),
    "resnet": ("resnet50", "a100", {"batch": 2}),
}
RUNTIMES = ("eager", "cudagraph", "compiled")
EXAMPLES = 4


@functools.cache
def oracle_of(name: str, runtime: str) -> Oracle:
    """Return an oracle that tests leave as it is."""
    model, target, options = MODELS[name]
    return Oracle(model, target, runtime=runtime, **options)


@functools.cache
def places_of(name: str) -> tuple[list[str], list[str]]:
    """Return the nodes that launch something, in order, and modules."""
    report = oracle_of(name, "eager").report()
    nodes = [node for node in report.nodes if node["duration_us"] > 0]
    ids = [*dict.fromkeys(node["id"] for node in nodes)]
    modules = sorted({node["module"].split("*")[0].rstrip(".") for node in nodes})
    return ids, [*filter(None, modules)] or ids


@st.composite
def an_edit(draw: st.DrawFn, name: str) -> Any:
    """Draw an edit; it need not be possible."""
    ids, modules = places_of(name)
    first = draw(st.integers(0, len(ids) - 1))
    own = ids[first : first + draw(st.integers(1, 3))]
    kinds: dict[str, Callable[[], Any]] = {
        "dtype": lambda: edits.Dtype(
            draw(st.sampled_from([*modules, own[0]])),
            draw(st.sampled_from(["bf16", "fp16"])),
        ),
        "fuse": lambda: edits.Fuse(own),
        "bind": lambda: edits.Bind(batch=draw(st.sampled_from([3, 16, 64]))),
        "place": lambda: edits.Place(f"emb_l.{draw(st.integers(0, 2))}", "uvm"),
        "target": lambda: edits.Target(
            **{
                draw(st.sampled_from(["gpu.memory_gb_per_s", "gpu.sm_clock_mhz"])): (
                    draw(st.sampled_from([900, 1100.5]))
                )
            }
        ),
    }
    return kinds[draw(st.sampled_from(sorted(kinds)))]()


def nothing_known(*_: object) -> dict[Any, Any]:
    """Return what was launched at sites before: nothing."""
    return {}


def anew(name: str, runtime: str, oracle: Oracle, asked: list[Any]) -> perfc.Report:
    """Return the analysis of the model by the pipeline of a report, from the start.

    Nothing is known of what was worked out before.
    """
    model, target, _ = MODELS[name]
    report = oracle.report(*asked)
    fields = {
        field: float(value)
        for edit in asked
        if isinstance(edit, edits.Target)
        for field, value in edit.fields
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfc.passes.shapes.inference._INFERRED", {})
        patch.setattr("perfc.passes.shapes.inference._TYPES", {})
        patch.setattr("perfc.passes.lowering.recipe._known_launches", nothing_known)
        found: perfc.Report = perfc.analyze(
            model,
            target,
            runtime=runtime,
            pipeline=report.pipeline,
            overrides=fields,
            batch=report.model.batch,
        )
    return found


def times(report: perfc.Report) -> list[tuple[str, float]]:
    """Return what each node takes."""
    return [(node["id"], node["duration_us"]) for node in report.nodes]


@pytest.mark.parametrize(
    ("name", "runtime"),
    [(name, r) for name in MODELS for r in RUNTIMES if r == "eager" or name != "cpu"],
)
@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(data=st.data())
def test_edited_models_are_those_that_are_loaded(
    name: str, runtime: str, data: st.DataObject
) -> None:
    """At once or one by one, as the pipeline says; undone to the last bit."""
    oracle = oracle_of(name, runtime)
    before = [oracle.time_us]
    asked: list[Any] = []
    for edit in data.draw(st.lists(an_edit(name), min_size=1, max_size=4)):
        try:
            oracle.apply(edit)
            before.append(oracle.time_us)
        except PerfcError:
            if len(before) == len(asked) + 1:
                continue
        asked.append(edit)
    stepwise = before[-1]
    for time_us in reversed(before[:-1]):
        oracle.undo()
        assert time_us == oracle.time_us
    if not asked:
        return
    found = anew(name, runtime, oracle, asked)

    assert stepwise == pytest.approx(oracle.ask(*asked), rel=CLOSE)
    assert found.time_us == pytest.approx(stepwise, rel=CLOSE)
    nodes, taken_us = zip(*times(found), strict=True)
    known, expected_us = zip(*times(oracle.report(*asked)), strict=True)
    assert known == nodes
    assert expected_us == pytest.approx(taken_us, rel=CLOSE)
