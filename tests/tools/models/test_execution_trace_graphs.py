"""Execution traces as op graphs: what ran, with its shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command
from tests.traces.chakra_messages import REDUCED, nodes, write
from tests.traces.executed import MM, RELU, Executed, tensor
from tests.traces.synthetic import Made

from perfc.ir import Graph
from perfc.tools.models.program import read_program

LINEAR = "aten::linear(Tensor input, Tensor weight) -> Tensor"
EMPTY = "aten::empty.memory_format(SymInt[] size) -> Tensor"
F32 = "Tensor(float)"


def _graph(path: Path) -> Graph:
    (rank,) = read_program(str(path)).classes
    assert rank.ops is not None
    return rank.ops


def _matmul(made: Executed, parent: int = 1) -> None:
    inputs: list[object] = [tensor(1), tensor(2)]
    shapes: list[object] = [[4, 8], [8, 2]]
    made.op(MM, inputs, shapes, [F32] * 2, [tensor(3)], [[4, 2]], parent=parent)


def test_the_innermost_calls_that_compute(tmp_path: Path) -> None:
    """A layer is the matmul in it; what only makes room for it is none."""
    made = Executed()
    inputs: list[object] = [tensor(1), tensor(9)]
    outer = made.op(LINEAR, inputs, [[4, 8], [2, 8]], [F32] * 2, [tensor(3)], [[4, 2]])
    _matmul(made, parent=outer)
    sizes: list[object] = [[8]]
    made.op(EMPTY, sizes, [[[]]], ["GenericList[Int]"], [tensor(7)], [[8]], parent=12)
    made.relu(4, 2)

    matmul, relu = _graph(made.write(tmp_path / "et.json"))

    assert ("matmul", "relu") == (matmul.op, relu.op)
    assert relu.operands == matmul.results


def test_all_that_ran_counts(command: Command, tmp_path: Path) -> None:
    """So do results that nobody reads; a number used again is another tensor."""
    made = Executed()
    _matmul(made)
    made.op(RELU, [tensor(3)], [[5]], [F32], [tensor(4)], [[5]])
    path = str(made.write(tmp_path / "et.json"))

    report = command("analyze", path, "--target", "v100", "--format", "json").report

    assert report["summary"]["launches"] == 2
    assert report["summary"]["flops"] >= 2 * 4 * 8 * 2
    assert not report["coverage"]["unknown_ops"]


def test_what_perfc_does_not_know_is_costed_by_its_bytes(
    command: Command, tmp_path: Path
) -> None:
    """Ops of extensions are reported; collectives are left out, and it is said."""
    made = Executed()
    outer = made.op(
        "fbgemm::permute(Tensor x) -> Tensor",
        [tensor(1)], [[1024]], [F32], [tensor(2)], [[1024]],
    )  # fmt: skip
    made.op(
        EMPTY, [[8]], [[[]]], ["GenericList[Int]"], [tensor(7)], [[8]], parent=outer
    )
    made.op("", [tensor(2)], [[1024]], [F32], [], [])
    made.nodes[-1]["name"] = "nccl:all_reduce"
    path = str(made.write(tmp_path / "et.json"))

    report = command("analyze", path, "--target", "v100", "--format", "json").report

    assert report["coverage"]["unknown_ops"] == {"fbgemm::permute": 1}
    messages = [d["message"] for d in report["diagnostics"] if d["code"] == "left-out"]
    (message,) = messages
    assert message.startswith("1 calls of nccl:all_reduce: collectives")


@pytest.mark.parametrize("kind", ["kineto", "nothing", "empty"])
def test_files_that_are_no_models(command: Command, tmp_path: Path, kind: str) -> None:
    """A Kineto trace, another JSON file, and a trace that computes nothing."""
    path = tmp_path / "t.json"
    if kind == "kineto":
        made = Made()
        made.op("aten::mm", 0, 5)
        made.write(path)
    elif kind == "nothing":
        path.write_text('{"a": 1}', encoding="utf-8")
    else:
        executed = Executed()
        executed.op("## mark ##", [], [], [], [], [])
        executed.write(path)

    outcome = command("analyze", str(path), "--target", "v100")

    assert outcome.code == 1
    said = "no op of it computes" if kind == "empty" else "expected an execution trace"
    assert f"{path}: {said}" in outcome.error


def test_chakra_is_predicted_like_json(command: Command, tmp_path: Path) -> None:
    """The same ops take the same time; collectives are named, with bytes and group."""
    made = Executed()
    made.mm(4, 8, 2)
    made.relu(4, 2)
    path = write(tmp_path / "run.et", [*nodes(made), REDUCED])
    json = made.write(tmp_path / "run.json")
    options = ("--target", "v100", "--format", "json")

    chakra = command("analyze", str(path), *options)
    plain = command("analyze", str(json), *options)

    assert plain.report["summary"] == chakra.report["summary"]
    (left_out,) = [d for d in chakra.report["diagnostics"] if d["code"] == "left-out"]
    assert "1 calls of all_reduce of 4,096 bytes in group 0" in left_out["message"]
