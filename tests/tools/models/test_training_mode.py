"""Training steps: `--mode training`, `--optimizer`, and the same in Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.tools.command import WORKLOAD, Command

import perfc
from perfc.ir import UsageError
from perfc.ir.choices import OPTIMIZERS
from perfc.ir.support import UnsupportedModelError
from perfc.passes.training import Training

TRAINING = ("--mode", "training")
JOINT = Path(__file__).parents[2] / "fixtures" / "pt2" / "block_joint.pt2"


def _report(command: Command, *arguments: str) -> Any:
    outcome = command.analyze("--format", "json", *arguments)
    assert 0 == outcome.code
    return outcome.report


def _joint(command: Command, *arguments: str) -> Any:
    """Analyze a file that has forward and backward."""
    given = ("analyze", str(JOINT), "--target", "v100", "--format", "json")
    outcome = command(*given, *arguments)
    assert 0 == outcome.code
    return outcome.report


def _written(folder: Path, text: str) -> str:
    path = folder / "graph.perfc"
    path.write_text(text)
    return str(path)


def test_a_step_has_all_its_phases_in_order(command: Command) -> None:
    """A training step is forward, loss, backward and optimizer, in this order."""
    report = _report(command, *TRAINING)

    phases = [node["phase"] for node in report["nodes"] if node["phase"]]
    order = [phase for i, phase in enumerate(phases) if phase not in phases[:i]]
    assert ["forward", "loss", "backward", "optimizer"] == order
    assert "training" == report["model"]["mode"]


def test_inference_is_the_default(command: Command) -> None:
    """Without `--mode` nothing is trained."""
    report = _report(command)

    assert "inference" == report["model"]["mode"]
    assert {"forward", ""} >= {node["phase"] for node in report["nodes"]}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_has_a_step(command: Command, optimizer: str) -> None:
    """`--optimizer` takes each, or the line says why it does not fit the model."""
    report = _report(command, *TRAINING, "--optimizer", optimizer)

    said = [d["message"] for d in report["diagnostics"] if d["code"] == "training-step"]
    assert [f"the loss is bce of %top_l.9.sigmoid, the optimizer {optimizer}"] == said


def test_sgd_is_the_default_optimizer(command: Command) -> None:
    """`--mode training` alone takes SGD, and says so."""
    alone = _report(command, *TRAINING)
    named = _report(command, *TRAINING, "--optimizer", "sgd")

    assert named["nodes"] == alone["nodes"]
    assert named["diagnostics"] == alone["diagnostics"]


def test_labels_are_copied_like_any_input(command: Command) -> None:
    """The labels are an input: they are copied to the device."""
    report = _report(command, *TRAINING)

    assert "f32[64,1]" == report["model"]["inputs"]["labels"]
    (copy,) = (node for node in report["nodes"] if node["id"] == "labels")
    assert copy["duration_us"] > 0


def test_an_optimizer_without_training_is_a_usage_error(command: Command) -> None:
    """Inference has no optimizer."""
    outcome = command.analyze("--optimizer", "adam")

    assert 2 == outcome.code
    expected = "optimizer 'adam' needs mode training (--mode training)"
    assert expected == outcome.error


def test_an_unknown_optimizer_is_a_usage_error(command: Command) -> None:
    """The line lists the optimizers."""
    outcome = command.analyze(*TRAINING, "--optimizer", "lion")

    assert 2 == outcome.code
    assert "'lion' is not one of 'sgd', 'adagrad', 'rowwise_adagrad'" in outcome.error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("loss=hinge", "loss='hinge' of training: expected auto, bce"),
        ("sparse-gradients=some", "sparse-gradients='some' of training: expected auto"),
        ("optimizer=adam,sparse-gradients=always", "adam takes no sparse gradients"),
        ("optimizer=adam,foreach=false", "foreach=false of training goes with adagrad"),
        ("fused=true,foreach=false", "foreach=false of training goes with adagrad"),
    ],
)
def test_wrong_options_of_the_pass(command: Command, options: str, said: str) -> None:
    """Options of the pass are checked like those of the command."""
    outcome = command.analyze("--pass", f"training{{{options}}}")

    assert 2 == outcome.code
    assert outcome.error.startswith(said)


@pytest.mark.parametrize("options", ["", "{every=-1}", "{every=2,modules=top_l.*}"])
def test_checkpoints_need_one_way_to_cut(command: Command, options: str) -> None:
    """Segments are modules, or so many ops: not both, nor neither."""
    outcome = command.analyze(*TRAINING, "--pass", f"checkpoint-activations{options}")

    assert 2 == outcome.code
    assert outcome.error.startswith("checkpoint-activations takes either modules=")


def test_a_loop_that_waits(command: Command) -> None:
    """Labels copied in the loss are not copied before; the loss is read back after it.

    Parameters one by one are one kernel each.
    """
    dense, loop = "sparse-gradients=never", "late-labels=true,read-loss=true"
    before, after = (
        _ops(_report(command, *TRAINING, "--pass", f"training{{{options}}}"))
        for options in (dense, f"{dense},{loop},foreach=false")
    )

    assert before["forward", "aten::to"] == after["forward", "aten::to"] + 1
    assert [0, 1] == [found["loss", "aten::to"] for found in (before, after)]
    assert [0, 1] == [found["loss", "aten::item"] for found in (before, after)]
    assert (1, 0) == (before[_FOREACH], after[_FOREACH])
    assert 1 < after["optimizer", "aten::add_"]


_FOREACH = ("optimizer", "aten::_foreach_add_")


def _ops(report: Any) -> Counter[tuple[str, str]]:
    """Count ops by phase and name."""
    return Counter((node["phase"], node["op"]) for node in report["nodes"])


def test_a_graph_that_trains_is_not_trained_again(
    command: Command, tmp_path: Path
) -> None:
    """A training step keeps its own optimizer."""
    path = _written(
        tmp_path,
        "graph @g(%x: f32[2,2], param %w: f32[2,2]) {\n"
        "  %y = matmul(%x, %w) : f32[2,2]\n"
        '  %g = matmul(%x, %y) : f32[2,2] loc{phase = "backward"}\n'
        "  return %g\n}\n",
    )
    outcome = command("analyze", path, "--target", "v100", *TRAINING)

    assert 1 == outcome.code
    assert "is a training step already" in outcome.error


def test_a_joint_file_gets_its_optimizer(command: Command) -> None:
    """A step without an optimizer gets the one that is asked for, and no more."""
    alone = _joint(command)
    whole = _joint(command, *TRAINING, "--optimizer", "adamw")

    def calls(report: Any, phase: str) -> list[str]:
        return [node["op"] for node in report["nodes"] if node["phase"] == phase]

    for phase in ("forward", "loss", "backward"):
        assert calls(alone, phase) == calls(whole, phase)
    assert [] == calls(alone, "optimizer")
    assert "aten::_foreach_lerp_" in calls(whole, "optimizer")
    # Every weight of the block is updated: two states each.
    memory = whole["memory"]
    assert 2 * memory["parameters_bytes"] == memory["optimizer_bytes"]


def test_a_joint_file_is_no_inference(command: Command) -> None:
    """Without `--mode training` it is what it is, and the report says so."""
    report = _joint(command)

    (said,) = (d for d in report["diagnostics"] if d["code"] == "training-step")
    assert "training" == report["model"]["mode"]
    assert (
        "block_joint is a training step, not an inference: it is analyzed without an "
        "optimizer, which it has not; add one with --mode training --optimizer NAME"
    ) == said["message"]


def test_python_trains_as_the_command_does(command: Command) -> None:
    """`perfc.load` and `perfc.analyze` take the same mode and optimizer."""
    model = perfc.load(WORKLOAD, batch=64, mode="training", optimizer="adam")
    report = perfc.analyze(model, "v100", mode="training")
    printed = _report(command, *TRAINING, "--optimizer", "adam")

    assert printed["summary"]["time_us"] == pytest.approx(report.time_us)
    assert "training" == model.mode


def test_a_loaded_model_has_its_mode() -> None:
    """What is loaded for inference cannot be analyzed for training."""
    model = perfc.load(WORKLOAD, batch=64)

    with pytest.raises(UsageError, match="loaded for inference; give mode"):
        perfc.analyze(model, "v100", mode="training")
    with pytest.raises(UsageError, match="mode 'both' is none of"):
        perfc.load(WORKLOAD, mode="both")


def test_another_batch_of_a_training_step() -> None:
    """A step is derived once, and bound to any batch."""
    model = perfc.load(WORKLOAD, batch=64, mode="training")

    again = perfc.load(WORKLOAD, batch=128, mode="training")
    expected = perfc.analyze(again, "v100").time_us
    assert expected == perfc.analyze(model.bind(128), "v100").time_us


def test_the_pass_may_stand_among_other_transforms() -> None:
    """A pass `training` that is given takes the optimizer that is asked for."""
    training = Training(loss="mse")
    model = perfc.load(
        WORKLOAD,
        batch=64,
        mode="training",
        optimizer="adagrad",
        transforms=[training],
    )

    (said,) = [d for d in model.program.diagnostics if d.code == "training-step"]
    assert said.message == "the loss is mse of %top_l.9.sigmoid, the optimizer adagrad"


def test_nothing_to_train(command: Command, tmp_path: Path) -> None:
    """A graph without parameters has no training step."""
    text = "graph @g(%x: f32[2]) {\n  %y = relu(%x) : ?\n  return %y\n}\n"
    path = _written(tmp_path, text)
    outcome = command("analyze", path, "--target", "v100", *TRAINING)

    assert 1 == outcome.code
    assert "there is nothing to train" in outcome.error
    with pytest.raises(UnsupportedModelError, match="nothing to train"):
        perfc.load(path, mode="training")
