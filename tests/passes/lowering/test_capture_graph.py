"""capture-graph: what a replay launches, and what cannot be captured."""

from __future__ import annotations

import pytest
from tests.passes.lowered import kernels

from perfc.costmodels import load_profile
from perfc.costmodels.sheets import GRAPH_LAUNCH
from perfc.frontends.workloads import build_workload
from perfc.ir import LaunchGraph, PerfcError, Program, TaskKind, single
from perfc.ir.launch import HOST_KINDS, verify_launches
from perfc.ir.text import parse_program
from perfc.passes import LAUNCHES, LowerKernels, Pass, PassManager, ShapeInference
from perfc.passes.facts import HOSTED, HostedLaunches
from perfc.passes.lowering import CaptureGraph
from perfc.passes.timing import Overhead

PROFILE = load_profile("shared")


def run(program: Program, *passes: Pass) -> HostedLaunches:
    """Lower a program of one rank class, and give it its host times."""
    manager = PassManager((ShapeInference(), LowerKernels(), *passes, Overhead()))
    analysis = manager.run(program)
    (hosted,) = analysis.annotations.get(HOSTED, program, None)
    verify_launches(hosted.graph)
    return hosted


def workload() -> Program:
    """Build a small DLRM."""
    program = build_workload("dlrm-ddp:tables=3,rows=1000")
    return program.bind({"batch": 64})


def ops_with_kernels(graph: LaunchGraph) -> list[str]:
    """Name the ops that launch, in order."""
    launching = {op for op, k in zip(graph.op, graph.kernel, strict=True) if k >= 0}
    return [graph.ops[op].node for op in sorted(launching)]


def test_a_replay_runs_the_same_kernels_of_the_same_ops() -> None:
    """In the same order, on the same stream."""
    eager, replay = run(workload()), run(workload(), CaptureGraph())

    assert kernels(eager.graph) == kernels(replay.graph)
    assert ops_with_kernels(eager.graph) == ops_with_kernels(replay.graph)


def test_one_call_launches_all_but_the_input_copies() -> None:
    """Inputs are copied by calls of their own, before it."""
    graph = run(workload(), CaptureGraph()).graph
    (call,) = [i for i, d in enumerate(graph.detail) if d == GRAPH_LAUNCH]

    for task, kind in enumerate(graph.kind):
        if kind is TaskKind.KERNEL:
            assert call == graph.issue[task]
        if kind is TaskKind.COPY:
            assert 0 <= graph.issue[task] < call


def test_the_launch_takes_more_for_each_node() -> None:
    """Base time of the call, and the profile's time a node; nothing else is host."""
    hosted = run(workload(), CaptureGraph())
    graph = hosted.graph
    (call,) = [i for i, d in enumerate(graph.detail) if d == GRAPH_LAUNCH]
    nodes = graph.issue.count(call)

    assert nodes > 10
    assert pytest.approx(
        PROFILE.calls_s.of(GRAPH_LAUNCH) + nodes * PROFILE.graph_node_s
    ) == float(hosted.host_s[call])
    after = [
        d for k, d in zip(graph.kind, graph.detail, strict=True) if k in HOST_KINDS
    ]
    assert ["T1", GRAPH_LAUNCH, "T1", "cudaDeviceSynchronize"] == after[-4:]


def test_output_copied_to_the_host_stays_outside() -> None:
    """Also where the host waits for it: the replay is over by then."""
    text = """graph @g(%x: f32[8,4]) {
      %y = relu(%x) : ?
      %h = copy(%y) : f32[8,4]@host
      return %h
    }"""
    graph = run(parse_program(text), CaptureGraph()).graph

    assert 1 == graph.detail.count(GRAPH_LAUNCH)
    assert "cudaStreamSynchronize" in graph.detail
    assert 2 == graph.detail.count("cudaMemcpyAsync")


def test_without_kernels_there_is_nothing_to_capture() -> None:
    """The launches stay as they are."""
    program = parse_program("graph @g(%x: f32[8]) { return %x }")

    assert GRAPH_LAUNCH not in run(program, CaptureGraph()).graph.detail


def test_another_batch_is_captured_alike() -> None:
    """The kernels are those of that batch, the tasks the same."""
    program = workload()
    passes = (ShapeInference(), LowerKernels(), CaptureGraph())
    facts = PassManager(passes).run(program).annotations
    (first,) = facts.get(LAUNCHES, program, None)
    larger = program.bind({"batch": 128})
    facts = PassManager(passes).run(larger, annotations=facts).annotations
    (second,) = facts.get(LAUNCHES, larger, None)

    assert first.structure is second.structure
    assert kernels(run(larger, CaptureGraph()).graph) == kernels(second)


def test_given_launches_are_refused() -> None:
    """Their host calls are measured, or written by hand."""
    with pytest.raises(PerfcError, match="@t is a launch graph, whose host calls"):
        PassManager((CaptureGraph(),), given=frozenset({LAUNCHES})).run(
            single(LaunchGraph("t"))
        )
