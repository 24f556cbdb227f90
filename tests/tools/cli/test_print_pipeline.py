"""`--print-pipeline`: the text of what runs, which runs again to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.same_output import COMMANDS, commands
from tests.tools.command import SMALL, Command

import perfc
from perfc.ir import UsageError
from perfc.ir.support import PipelineError

KEPT = ("--batch", "--target", "--set")
"""Options that say nothing of passes."""

_SKIPPED = {"--help", "-o", "missing.onnx", "nowhere", "dlrm-default:tables=x"}


def _analyses() -> list[list[str]]:
    """Return what analyses are compared before and after a change, in one format."""
    found: list[list[str]] = []
    for verb, *words in commands(COMMANDS):
        if verb != "analyze" or _SKIPPED & {*words} or words.count("--target") > 1:
            continue
        at = words.index("--format") if "--format" in words else len(words)
        found.append([*words[:at], *words[at + 2 :]])
    return found


def _bare(words: list[str]) -> list[str]:
    """Return a command without the options that passes come from."""
    model, *options = words
    pairs = zip(options[::2], options[1::2], strict=True)
    return [model, *(w for pair in pairs if pair[0] in KEPT for w in pair)]


@pytest.mark.parametrize(
    "words", _analyses(), ids=lambda words: f"{Path(words[0]).name} {words[-1]}"
)
def test_what_is_printed_runs_to_the_same_report(
    command: Command, words: list[str]
) -> None:
    """With the options that it came from, and in their place."""
    json = ("--format", "json")
    text = command("analyze", *words, "--print-pipeline").out
    assert text.endswith("\n")
    assert 1 == text.count("\n")

    report = command("analyze", *words, *json)

    assert 0 == report.code
    for again in (words, _bare(words)):
        given = ("--pipeline", text.rstrip("\n"))
        assert report == command("analyze", *again, *given, *json)


MODULE = """
import torch

def make():
    return torch.nn.Linear(64, 8), (torch.randn(32, 64),)
"""


@pytest.mark.parametrize("more", [(), ("--dtype", "amp-bf16")])
def test_a_recording_runs_again(
    command: Command, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """PyTorch's own step needs no pass for its types and its backward pass."""
    path = tmp_path / "module.py"
    path.write_text(MODULE, encoding="utf-8")
    module = ("analyze", f"{path}:make", "--mode", "training")
    words = (*module, "--target", "dgx-a100", "--ranks", "4", *more)
    text = command(*words, "--print-pipeline").out.strip()

    assert text.startswith("shape-inference,data-parallel{world=4},")
    report = command(*words, "--format", "json")
    assert report == command(*words, "--pipeline", text, "--format", "json")
    assert 0 == report.code


def test_a_pipeline_is_printed_to_a_file(command: Command, tmp_path: Path) -> None:
    """With `-o`, as any other output; the report is not."""
    path = tmp_path / "pipeline.txt"
    words = ("analyze", *SMALL, "--target", "t4", "--print-pipeline")

    assert "" == command(*words, "-o", str(path)).out
    assert command(*words).out == path.read_text(encoding="utf-8")


def test_a_pipeline_of_ones_own_runs_as_it_is_written(command: Command) -> None:
    """Without what raises the matmuls, matmuls and biases stay apart."""
    back = "lower-kernels,kernel-cost,overhead,stream-schedule,critical-path"
    text = f"raise-embedding-bag,shape-inference,fold-shapes,{back},time-interval"
    words = ("analyze", *SMALL, "--target", "t4", "--pipeline", text)

    assert f"{text}\n" == command(*words, "--print-pipeline").out
    assert 0 == command(*words).code


WHOLE = "raise-embedding-bag,resolve-control-flow,shape-inference,fold-shapes"
TIMING = (
    "lower-kernels,kernel-cost,overhead,stream-schedule,critical-path,time-interval"
)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            f"fold-shapes,{TIMING}",
            (),
            "shape-inference is not in --pipeline: write all of it, as --print-",
        ),
        (
            f"shape-inference,lower-kernels,fold-shapes,{TIMING}",
            (),
            "pass 'lower-kernels' stands before 'fold-shapes', which changes the graph",
        ),
        (
            f"{WHOLE},{TIMING}",
            ("--mode", "training"),
            "--pipeline has no training, which another option asks for",
        ),
        (
            f"{WHOLE},training,shape-inference,{TIMING}",
            ("--mode", "training", "--optimizer", "adam"),
            "--pipeline has no training{optimizer=adam}, which another option asks for",
        ),
        (
            f"{WHOLE},{TIMING}",
            ("--dtype", "bf16"),
            "--pipeline has no convert-dtype, which another option asks for",
        ),
        (
            f"{WHOLE},{TIMING}",
            ("--popularity", "zipf(1.1)"),
            "--pipeline has no set-popularity{popularity=",
        ),
    ],
)
def test_pipelines_that_contradict(
    command: Command, text: str, options: tuple[str, ...], message: str
) -> None:
    """Each is one line that names both sides."""
    words = ["analyze", *SMALL, "--target", "t4", *options, "--pipeline", text]
    assert message in command.refused(words, 2)


def test_a_pipeline_of_another_number_of_ranks(command: Command) -> None:
    """Ranks that only `--ranks` speaks of are not made in silence."""
    words = ["analyze", *SMALL, "--target", "dgx-a100", "--ranks", "4"]
    text = f"{WHOLE},{TIMING}"

    assert (
        "4 ranks are asked for (--ranks), but the passes run the model on 1"
        in command.refused([*words, "--pipeline", text], 2)
    )


def test_passes_of_a_pipeline_out_of_order(command: Command) -> None:
    """Facts say who has to run before whom."""
    text = "kernel-cost,lower-kernels,overhead,stream-schedule,critical-path"
    words = ["analyze", *SMALL, "--target", "t4", "--pipeline", text]

    message = (
        "pass 'kernel-cost' requires launch.device, which no earlier pass provides"
    )
    assert f"{message}: 'lower-kernels' does, and comes later" in command.refused(
        words, 1
    )


def test_a_report_knows_its_pipeline() -> None:
    """A loaded model takes it as a whole, another model's it does not."""
    model, other = (
        perfc.load(SMALL[0], batch=64, mode=mode) for mode in ("inference", "training")
    )
    report = perfc.analyze(model, "t4")

    again = perfc.analyze(model, "t4", pipeline=report.pipeline)
    assert report.to_dict() == again.to_dict()
    named = perfc.analyze(SMALL[0], "t4", batch=64, pipeline=report.pipeline)
    assert report.to_dict() == named.to_dict()
    with pytest.raises(UsageError, match="is loaded by other passes than"):
        perfc.analyze(other, "t4", pipeline=report.pipeline)
    with pytest.raises(PipelineError, match="ends without"):
        perfc.analyze(model, "t4", pipeline=TIMING.removesuffix(",time-interval"))
