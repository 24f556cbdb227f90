"""Segments of the host for a graph with ops fused, against those of all its ops."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import pytest

from perfc import PerfcError
from perfc.costmodels import HostProfile
from perfc.costmodels.sheets import load_profile
from perfc.ir import LaunchGraph
from perfc.ir.launch import verify_launches
from perfc.passes.facts import LAUNCHES
from perfc.passes.lowering import FuseOps
from perfc.passes.timing.host_splice import Hosting
from perfc.tools.analysis import run_of
from perfc.tools.request import AnalyzeOptions, Request
from perfc.tools.run import Run

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "inference": ("dlrm-default:tables=2,rows=1000", {"batch": 64}),
    "training": ("dlrm-ddp:tables=2,rows=1000", {"batch": 64, "mode": "training"}),
    "gpt": ("gpt2:layers=1", {"batch": 2, "mode": "training"}),
    "gpt-inference": ("gpt2:layers=1", {"batch": 2}),
}
COLUMNS = ("kind", "resource", "op", "issue", "after", "detail", "group", "ops")


def run_named(name: str) -> Run:
    """Return the run of a model."""
    model, options = MODELS[name]
    return run_of(Request.of("t", AnalyzeOptions, options, model=model, target="a100"))


def nodes_of(graph: LaunchGraph) -> list[str]:
    """Return the nodes that launch something, in order."""
    return [*dict.fromkeys(graph.ops[op].node for op in graph.op)]


def hosting_of(run: Run, fusions: list[tuple[str, ...]]) -> Iterator[LaunchGraph]:
    """Yield the graph, and the graph with ops fused, both without a host."""
    place = next(n for n, p in enumerate(run.passes) if LAUNCHES in p.provides) + 1
    fuse = FuseOps.of([(names, 9.0) for names in fusions])
    passes = (*run.passes[:place], fuse)
    (plain,) = attrs.evolve(run, passes=passes[:-1]).ran().get(LAUNCHES)
    (fused,) = attrs.evolve(run, passes=passes).ran().get(LAUNCHES)
    yield from (plain, fused)


def profile_with_borders() -> HostProfile:
    """Return a profile that knows what lies between phases."""
    between = {"begin": 1e-5, "phase": 2e-5, "hand_over": 3e-5, "hand_back": 4e-5}
    return attrs.evolve(load_profile("shared"), between_s={**between, "end": 5e-5})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("between", [False, True])
def test_segments_are_those_of_the_whole(name: str, between: bool) -> None:
    """Column by column, whatever is fused, twice in turn; else none are found."""
    run, chance = run_named(name), random.Random(name)
    profile = profile_with_borders() if between else load_profile("shared")
    (plain, _) = hosting_of(run, [(nodes_of_run(run)[-1],)])
    nodes = nodes_of(plain)
    compared = 0
    for _ in range(60):
        first = chance.randrange(len(nodes) - 1)
        other = chance.randrange(len(nodes) - 1)
        groups = [
            tuple(nodes[at : at + chance.randint(1, 3)])
            for at in dict.fromkeys((first, other))
        ]
        try:
            plain, fused = hosting_of(run, groups)
        except PerfcError:
            continue
        compared += compare(run, plain, fused, profile)
    assert compared > 10


def nodes_of_run(run: Run) -> list[str]:
    """Return the nodes of a run that launch kernels."""
    place = next(n for n, p in enumerate(run.passes) if LAUNCHES in p.provides) + 1
    (plain,) = attrs.evolve(run, passes=run.passes[:place]).ran().get(LAUNCHES)
    return [name for name in nodes_of(plain) if name]


def compare(
    run: Run, plain: LaunchGraph, fused: LaunchGraph, profile: HostProfile
) -> int:
    """Compare both ways; return how many splices were followed."""
    (rank,) = run.model.program.classes
    assert rank.ops is not None
    phase = {node.name: node.location.phase for node in rank.ops}
    origin = {node.name: node.location.origin for node in rank.ops}

    def whole(graph: LaunchGraph) -> Hosting:
        phases = (
            [phase.get(op.node, "") for op in graph.ops] if profile.between_s else []
        )
        nodes = [origin.get(op.node, "") for op in graph.ops]
        return Hosting.of(graph, profile, phases, nodes)

    chain = [fused]
    while chain[-1].splice is not None:
        chain.append(chain[-1].splice.base)
    assert chain[-1] is plain.structure
    found, count = whole(plain), 0
    for graph in chain[-2::-1]:
        assert graph.splice is not None
        spliced = found.spliced(graph, graph.splice)
        expected = whole(graph)
        if spliced is None:
            found = expected
            continue
        count += 1
        verify_launches(spliced.graph)
        for column in COLUMNS:
            assert getattr(spliced.graph, column) == getattr(expected.graph, column)
        assert kernels(spliced.graph) == kernels(expected.graph)
        assert np.array_equal(spliced.host_s, expected.host_s, equal_nan=True)
        assert np.array_equal(
            spliced.graph.stated_s, expected.graph.stated_s, equal_nan=True
        )
        assert attrs.astuple(spliced.marks) == attrs.astuple(expected.marks)
        assert [*spliced.phases] == [*expected.phases]
        assert [*spliced.nodes] == [*expected.nodes]
        found = spliced
    return count


def kernels(graph: LaunchGraph) -> list[object]:
    """Return the kernel of each task."""
    return [None if n < 0 else graph.kernels[n] for n in graph.kernel]
