"""Memory over time: its peak is the report's, and so are the parts of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import perfc
from perfc.passes import MemoryUse
from perfc.tools.charts import MEMORY_CLASSES, memory_over_time, memory_timeline

STEPS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    ({"mode": "training", "optimizer": "adagrad"}, {}),
    ({"mode": "training", "optimizer": "adam"}, {"runtime": "compiled"}),
    ({"mode": "training", "ranks": 4}, {}),
)


def _report(loaded: dict[str, Any], asked: dict[str, Any]) -> perfc.Report:
    return perfc.analyze(perfc.load("dlrm-ddp", batch=256, **loaded), "v100", **asked)


@pytest.mark.parametrize(("loaded", "asked"), STEPS)
def test_peak(loaded: dict[str, Any], asked: dict[str, Any]) -> None:
    """Most is allocated where the report says, as much as it says, and for that."""
    report = _report(loaded, asked)

    curve = memory_timeline(report)

    assert report.memory["peak_bytes"] == max(curve.allocated_bytes)
    assert report.memory["at_node"] == curve.at_node
    for kind in MEMORY_CLASSES:
        assert report.memory[f"{kind}_bytes"] == curve.bytes_of[kind][curve.peak]


@pytest.mark.parametrize(("loaded", "asked"), STEPS)
def test_curve(loaded: dict[str, Any], asked: dict[str, Any]) -> None:
    """It begins with the step, goes on in order, and steps at each point."""
    report = _report(loaded, asked)

    curve = memory_timeline(report)
    points = [*zip(*curve.bytes_of.values(), strict=True)]

    assert 0.0 == curve.start_us[0]
    assert sorted(curve.start_us) == curve.start_us
    assert curve.start_us[-1] <= report.time_us
    assert curve.allocated_bytes == [sum(point) for point in points]
    assert all(here != after for here, after in itertools.pairwise(points))


def test_the_peak_is_where_its_node_begins() -> None:
    """In eager mode the host allocates when it begins an op."""
    report = _report({}, {})
    graph = report.results.hosted[0].graph
    (op,) = (i for i, op in enumerate(graph.ops) if op.node == report.memory["at_node"])
    begins_us = [
        1e6 * report.results.schedule.start_s[task]
        for task in range(len(graph))
        if graph.op[task] == op and graph.detail[task] == "T2"
    ]

    curve = memory_timeline(report)

    assert begins_us == [pytest.approx(curve.start_us[curve.peak])]


def test_what_lasts_does_not_change() -> None:
    """Parameters, states and workspaces stay from step to step."""
    curve = memory_timeline(_report(*STEPS[1]))

    for kind in ("parameters", "optimizer", "library"):
        assert 1 == len(set(curve.bytes_of[kind]))
    assert 0 == curve.bytes_of["gradients"][0] < curve.bytes_of["gradients"][-1]


def test_a_graph_is_flat() -> None:
    """A replay allocates nothing: all is held from the first moment."""
    report = _report({}, {"runtime": "cudagraph"})

    curve = memory_timeline(report)

    assert [0.0] == curve.start_us
    assert [report.memory["peak_bytes"]] == curve.allocated_bytes


def test_nothing_known_is_nothing_allocated() -> None:
    """What is given as launches has no tensors."""
    curve = memory_over_time(_report({}, {}).results, 0, MemoryUse())

    assert ([0.0], [0]) == (curve.start_us, curve.allocated_bytes)
