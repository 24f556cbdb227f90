"""What `pin-copies` and `remove-syncs` leave of what the host waits for."""

from __future__ import annotations

from perfc.ir import LaunchGraph, TaskKind
from perfc.ir.launch import verify_launches
from perfc.ir.text import parse_program
from perfc.passes import LAUNCHES, LowerKernels, Pass, PassManager, ShapeInference
from perfc.passes.what_if import PinCopies, RemoveSyncs, waits_for_inputs, waits_inside

WAITING = """
graph @waiting(%x: f32[1024,1024]) {
  %y = relu(%x) : f32[1024,1024]
  %h = copy(%y) : f32[1024,1024]@host
  %d = copy(%h) : f32[1024,1024]
  return %d
}
"""


def _launches(*passes: Pass, inputs: str = "host-pageable") -> LaunchGraph:
    program = parse_program(WAITING)
    lower = LowerKernels(inputs=inputs)
    analysis = PassManager((ShapeInference(), lower, *passes)).run(program)
    (graph,) = analysis.annotations.get(LAUNCHES, program, None)
    verify_launches(graph)
    return graph


def _waited_for(graph: LaunchGraph) -> list[str]:
    """Name the copies that the host waits for."""
    return [
        graph.detail[other]
        for task in sorted(waits_inside(graph))
        for other in graph.after[task]
    ]


def _pinned(graph: LaunchGraph) -> list[object]:
    copies = [graph.kernels[number] for number in graph.kernel if number >= 0]
    return [k.params["pinned"] for k in copies if k.op == "memcpy"]


def test_a_copy_from_pageable_memory_is_waited_for() -> None:
    """So is one to the host; the last wait ends the iteration."""
    graph = _launches()

    assert ["h2d", "d2h", "h2d"] == _waited_for(graph)
    assert waits_for_inputs(graph) < waits_inside(graph)
    assert TaskKind.SYNC is graph.kind[-1]


def test_pinned_copies_to_the_device() -> None:
    """The host still waits for what it reads."""
    graph = _launches(PinCopies())

    assert ["d2h"] == _waited_for(graph)
    assert [True, False, True] == _pinned(graph)
    assert TaskKind.SYNC is graph.kind[-1]


def test_blocking_copies_from_pinned_memory() -> None:
    """They are waited for, too, and stay what they were when they no longer are."""
    before = _launches(inputs="host-pinned-blocking")
    graph = _launches(PinCopies(), inputs="host-pinned-blocking")

    assert ["h2d", "d2h", "h2d"] == _waited_for(before)
    assert ["d2h"] == _waited_for(graph)
    assert [True, False, False] == _pinned(before)
    assert [True, False, True] == _pinned(graph)


def test_no_waits_but_the_last() -> None:
    """Copies stay what they were; so does everything else."""
    before, graph = _launches(), _launches(RemoveSyncs())

    assert not waits_inside(graph)
    assert [False, False, False] == _pinned(graph)
    assert len(before) - len(waits_inside(before)) == len(graph)
    assert before.ops == graph.ops


def test_nothing_to_remove() -> None:
    """Launches without waits stay as they are."""
    graph = _launches(RemoveSyncs())

    assert graph.kind == _launches(RemoveSyncs(), RemoveSyncs()).kind
