"""The instruments that perfc ships."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import attrs
import pytest

from perfc.ir import AnyKey, LaunchGraph, PerfcError, Program, TaskKind, single
from perfc.ir.support import VerifyError
from perfc.ir.text import parse_graph, parse_program, print_graph
from perfc.passes import (
    LAUNCHES,
    Pass,
    PassContext,
    PassManager,
    ShapeInference,
    Transform,
)
from perfc.passes.instruments import DumpDir, Instrument, Reproducer, Timing, VerifyEach
from perfc.passes.shapes import FoldShapes

TEXT = """graph @g(%x: f32[4]) {
  %h = relu(%x) : f32[4]
  %y = exp(%h) : f32[4]
  return %y
}
"""


@attrs.frozen
class Break(Transform):
    """Makes the graph invalid, or a type wrong, or just raises."""

    name: ClassVar[str] = "break"

    how: str = "graph"

    def run(self, program: Program, ctx: PassContext) -> None:
        """Break it."""
        graph = program.classes[0].ops
        assert graph is not None
        first, second = graph
        if self.how == "type":
            first.results[0].type = parse_graph(TEXT.replace("4", "5")).inputs[0].type
        else:
            first.operands = second.results
        if self.how == "raise":
            msg = "cannot\ngo on"
            raise PerfcError(msg)


@attrs.frozen
class BreakTyped(Break):
    """The same, claiming that types are as they should be."""

    name: ClassVar[str] = "break-typed"
    preserves: ClassVar[frozenset[AnyKey]] = ShapeInference.provides


@attrs.frozen
class LaunchBackwards(Pass):
    """Makes a launch graph whose first task waits for itself."""

    name: ClassVar[str] = "launch-backwards"
    provides: ClassVar[frozenset[AnyKey]] = frozenset({LAUNCHES})

    def run(self, program: Program, ctx: PassContext) -> None:
        """Make it."""
        graph = LaunchGraph("t")
        graph.task(TaskKind.HOST, graph.thread(), after=(0,))
        ctx.set(LAUNCHES, program, (graph,))


@pytest.fixture
def program() -> Program:
    """A program of two nodes."""
    return single(parse_graph(TEXT))


def _run(program: Program, passes: list[Pass], *instruments: Instrument) -> None:
    PassManager(passes, instruments).run(program)


def test_timing(program: Program) -> None:
    """Every run of a pass has an entry, in order."""
    timing = Timing()

    _run(program, [ShapeInference(), FoldShapes(), ShapeInference()], timing)

    assert ["shape-inference", "fold-shapes", "shape-inference"] == [
        name for name, _ in timing.seconds
    ]
    assert all(seconds > 0 for _, seconds in timing.seconds)


def test_verify_each(program: Program) -> None:
    """A pass that leaves an invalid graph is caught right after it."""
    with pytest.raises(VerifyError):
        _run(program, [Break(), ShapeInference()], VerifyEach())


def test_verify_each_checks_types(program: Program) -> None:
    """Where types are known, each is compared with its op's rule."""
    passes = [ShapeInference(), BreakTyped("type")]

    with pytest.raises(VerifyError, match=r"%h is f32\[5\], its rule says f32\[4\]"):
        _run(program, [*passes], VerifyEach())


def test_verify_each_checks_launch_graphs(program: Program) -> None:
    """Lowered launch graphs keep their invariants, too."""
    with pytest.raises(VerifyError, match="task 0 of @t: waits for task 0"):
        _run(program, [LaunchBackwards()], VerifyEach())


def test_verify_each_checks_given_launch_graphs() -> None:
    """So do those that the source gives."""
    graph = LaunchGraph("t")
    graph.task(TaskKind.KERNEL, graph.thread())

    with pytest.raises(VerifyError, match="a kernel task belongs on a stream"):
        _run(single(graph), [ShapeInference()], VerifyEach())


def test_dump_dir(program: Program, tmp_path: Path) -> None:
    """Each pass leaves one numbered file that reads back."""
    folder = tmp_path / "made" / "here"

    _run(program, [ShapeInference(), FoldShapes()], DumpDir(folder))

    files = sorted(folder.iterdir())
    assert ["000_shape-inference.perfc", "001_fold-shapes.perfc"] == [
        path.name for path in files
    ]
    assert TEXT == print_graph(parse_graph(files[-1].read_text()))


def test_dump_dir_that_cannot_be(program: Program, tmp_path: Path) -> None:
    """A folder that cannot be made is one clear error."""
    (tmp_path / "file").touch()

    with pytest.raises(PerfcError, match=r"cannot write .*file"):
        _run(program, [ShapeInference()], DumpDir(tmp_path / "file"))


@pytest.mark.parametrize("how", ["graph", "raise"])
def test_reproducer(program: Program, tmp_path: Path, how: str) -> None:
    """It holds the program as it came, even if the pass changed it and failed."""
    path = tmp_path / "new" / "bug.perfc"
    pipeline = f"shape-inference,break{{how={how}}}"

    with pytest.raises(PerfcError):
        _run(
            program,
            [ShapeInference(), Break(how)],
            Reproducer(path, pipeline),
            VerifyEach(),
        )

    run, why, *_ = path.read_text().splitlines()
    assert f"// RUN: {pipeline}" == run
    assert re.fullmatch(r"// break: (cannot go on|.*%h.*)", why)
    (rank,) = parse_program(path.read_text()).classes
    assert rank.ops is not None
    assert TEXT == print_graph(rank.ops)


def test_reproducer_of_a_pipeline_that_works(program: Program, tmp_path: Path) -> None:
    """Nothing is written where nothing fails."""
    _run(program, [ShapeInference()], Reproducer(tmp_path / "bug.perfc", "x"))

    assert [] == list(tmp_path.iterdir())


def test_reproducer_that_cannot_be_written(program: Program, tmp_path: Path) -> None:
    """A path that cannot be written is one clear error."""
    with pytest.raises(PerfcError, match="cannot write"):
        _run(program, [Break("raise")], Reproducer(tmp_path, "break"))
