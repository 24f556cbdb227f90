"""`perfc opt`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command

GRAPH = """graph @g(%x: f32[n,4]) {
  %h = relu(%x) : f32[n,4]
  return %h
}
"""
BROKEN = GRAPH.replace("relu(%x)", "relu(%x, %x)")


@pytest.fixture
def graph(tmp_path: Path) -> str:
    """A file with a small graph."""
    path = tmp_path / "g.perfc"
    path.write_text(GRAPH)
    return str(path)


def test_round_trip(command: Command, graph: str) -> None:
    """Without passes the text comes out as it went in."""
    outcome = command("opt", graph)

    assert (0, GRAPH, "") == (outcome.code, outcome.out, outcome.err)


def test_output_reads_back(command: Command, graph: str, tmp_path: Path) -> None:
    """What it prints, facts and all, is input again and means the same."""
    first, second = tmp_path / "1.perfc", tmp_path / "2.perfc"
    passes = "shape-inference,lower-kernels,overhead,kernel-cost,stream-schedule"
    options = ("-p", passes, "--target", "v100", "--dim", "n=8")

    assert 0 == command("opt", graph, *options, "-o", str(first)).code
    assert 0 == command("opt", str(first), "-o", str(second)).code
    assert "// " in first.read_text()
    lines = [line.partition("  //")[0] for line in first.read_text().splitlines()]
    assert [line for line in lines if not line.startswith("//")] == (
        second.read_text().splitlines()
    )


def test_workload(command: Command) -> None:
    """Any model can be looked at as text."""
    assert command("opt", "dlrm-ddp").out.startswith("graph @")


def test_dim(command: Command, graph: str) -> None:
    """`--dim` binds a dimension, for passes that need numbers."""
    passes = ("-p", "shape-inference,lower-kernels")

    assert "--dim n=N" in command.refused(["opt", graph, *passes], 1)
    assert "rows = 8" in command("opt", graph, *passes, "--dim", "n=8").out


def test_target(command: Command, graph: str) -> None:
    """Passes that need a target say so, and take the one given."""
    passes = ("-p", "shape-inference,lower-kernels,kernel-cost", "--dim", "n=8")

    assert "give one with --target" in command.refused(["opt", graph, *passes], 1)
    assert " us (streaming, " in command("opt", graph, *passes, "--target", "v100").out


def test_invalid(command: Command, tmp_path: Path) -> None:
    """Text that breaks an invariant is one line that names the node."""
    path = tmp_path / "g.perfc"
    path.write_text(BROKEN)

    assert "%h = relu: expected 1 operand" in command.refused(["opt", str(path)], 1)


def test_dump_dir(command: Command, graph: str, tmp_path: Path) -> None:
    """`--dump-dir` leaves a file per pass."""
    folder = tmp_path / "dumps"

    command(
        "opt", graph, "-p", "shape-inference,fold-shapes", "--dump-dir", str(folder)
    )

    assert ["000_shape-inference.perfc", "001_fold-shapes.perfc"] == sorted(
        path.name for path in folder.iterdir()
    )


def test_reproducer(command: Command, graph: str, tmp_path: Path) -> None:
    """`--reproducer` leaves what is needed to see a failure again."""
    path = tmp_path / "bug.perfc"
    arguments = ("-p", "shape-inference,lower-kernels")

    assert 1 == command("opt", graph, *arguments, "--reproducer", str(path)).code

    text = path.read_text()
    assert text.startswith("// RUN: shape-inference,lower-kernels\n// lower-kernels: ")
    assert text.endswith(GRAPH)
    assert 1 == command("opt", str(path), *arguments).code


def test_verbose(command: Command, graph: str) -> None:
    """`-v` says on stderr what each pass took."""
    outcome = command("opt", graph, "-p", "shape-inference", "-v")

    assert outcome.err.startswith("perfc: shape-inference: ")
    assert command("opt", graph, "-p", "shape-inference").out == outcome.out
