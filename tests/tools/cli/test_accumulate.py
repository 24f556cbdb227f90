"""`--accumulate`, as typed: steps of several microbatches, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tools.command import Command

MODEL = "gpt2:layers=2,hidden=64,heads=4,seq=16,vocab=101"
STEP = ("analyze", MODEL, "--target", "dgx-a100", "--mode", "training", "--batch", "8")
FOUR = (*STEP, "--accumulate", "4")
FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_a_step_of_microbatches(command: Command) -> None:
    """The batch is the whole one, and the title says in how many parts."""
    done = command(*FOUR)

    assert 0 == done.code
    assert done.out.startswith(
        "gpt2 · batch 8 · 4 microbatches · training · fp32 · dgx-a100"
    )


def test_one_microbatch_is_a_plain_step(command: Command) -> None:
    """`--accumulate 1` prints what is printed without it."""
    assert command(*STEP).out == command(*STEP, "--accumulate", "1").out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--batch", "3"), 1, "a batch of 3 has fewer samples than 4 microbatches (--"),
        (("--batch", "6"), 1, "a batch of 6 does not divide into 4 microbatches (--ac"),
        (("--dim", "batch=6"), 1, "--dim batch=6: 'batch' is the batch, so it has to"),
        (("--mode", "inference"), 2, "has no backward pass whose gradients could be a"),
        (("--accumulate", "0"), 2, "Invalid value for '--accumulate': 0 is not in the"),
        (("--accumulate", "many"), 2, "Invalid value for '--accumulate': 'many' is no"),
        (
            ("--pass", "pipeline-parallel{stages=2,microbatches=2}"),
            2,
            "--accumulate 4 beside pipeline-parallel{stages=2,microbatches=2}: exp",
        ),
        (
            ("--pass", "pipeline-parallel{stages=2}", "--pass", "accumulate-gradients"),
            2,
            "pipeline-parallel and accumulate-gradients both say how many microbatches",
        ),
        (
            ("--pass", "accumulate-gradients{sync=never}"),
            2,
            "sync='never' of accumulat",
        ),
    ],
)
def test_what_is_refused(
    command: Command, words: tuple[str, ...], code: int, message: str
) -> None:
    """In one line that says what was expected."""
    done = command(*FOUR, *words)

    assert code == done.code
    assert message in done.error


def test_microbatches_have_to_be_said(command: Command) -> None:
    """Options of the pass alone do not say how many there are."""
    done = command(*STEP, "--pass", "accumulate-gradients{sync=each}")

    assert 2 == done.code
    assert "needs more: accumulate-gradients{microbatches=…}" in done.error


@pytest.mark.parametrize(
    "passes",
    [
        ("accumulate-gradients{sync=each}",),
        ("fsdp",),
        ("fsdp{strategy=grad-op}", "accumulate-gradients{sync=each}"),
        ("tensor-parallel{ranks=2}",),
        ("pipeline-parallel{stages=2}",),
    ],
)
def test_microbatches_on_many_ranks(command: Command, passes: tuple[str, ...]) -> None:
    """Replicas, shared parameters, layers and stages take the number of the option."""
    added = [word for text in passes for word in ("--pass", text)]
    report = command(*FOUR, "--ranks", "4", *added, "--format", "json").report

    assert 8 == report["model"]["batch"]
    assert 4 == report["model"]["microbatches"]
    assert report["summary"]["comm_us"] > 0


def test_what_is_printed_runs_again(command: Command) -> None:
    """The pass is in the pipeline that is printed, which needs no other option."""
    text = command(*FOUR, "--ranks", "2", "--print-pipeline").out.strip()
    assert "accumulate-gradients{microbatches=4}" in text
    asked = command(*FOUR, "--ranks", "2", "--format", "json").out
    bare = ("analyze", MODEL, "--target", "dgx-a100", "--batch", "8")
    again = command(*bare, "--pipeline", text, "--format", "json")
    assert asked == again.out

    other = command(*bare, "--pipeline", text, "--accumulate", "2")
    assert 2 == other.code
    assert "--pipeline has no accumulate-gradients{microbatches=2}" in other.error


def test_a_fixed_batch_is_that_of_a_microbatch(command: Command) -> None:
    """What a file fixes every microbatch computes; the step has as many times that."""
    path = str(FIXTURES / "onnx/dlrm_small_legacy_static.onnx")
    asked = ("analyze", path, "--target", "a100", "--mode", "training")
    one = command(*asked, "--format", "json").report["model"]["batch"]
    step = (*asked, "--accumulate", "3", "--format", "json")

    assert 3 * one == command(*step).report["model"]["batch"]
    assert 0 == command(*step, "--batch", str(3 * one)).code
    refused = command(*step, "--batch", str(one))
    assert 1 == refused.code
    assert f"a fixed batch of {one}, in each of 3 microbatches" in refused.error


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("tables", ["bag", "batched"])
def test_tables_are_trained_too(command: Command, optimizer: str, tables: str) -> None:
    """Rows are joined, dense gradients added; fused tables are updated each time."""
    model = f"dlrm-ddp:tables=2,rows=1000,embedding={tables}"
    options = ("--mode", "training", "--optimizer", optimizer, "--target", "a100")
    step = ("--batch", "64", "--accumulate", "4", "--format", "json")
    report = command("analyze", model, *options, *step).report
    codes = {d["code"] for d in report["diagnostics"]}

    assert 64 == report["model"]["batch"]
    assert (tables == "batched") == ("tables-updated-each-microbatch" in codes)
    assert {} == report["coverage"]["unknown_ops"]


@pytest.mark.parametrize("runtime", ["eager", "compiled", "cudagraph"])
def test_every_runtime_has_microbatches(command: Command, runtime: str) -> None:
    """More microbatches take longer, whatever launches their kernels."""
    times = [
        command(*STEP, *more, "--runtime", runtime, "--format", "json").report
        for more in ((), ("--accumulate", "2"), ("--accumulate", "8"))
    ]

    assert sorted(t["summary"]["launches"] for t in times) == [
        t["summary"]["launches"] for t in times
    ]
