"""Sharded tables in a CUDA graph: nobody waits to learn how much he gets."""

from __future__ import annotations

import pytest
from tests.tools.command import Command

import perfc
from perfc.passes import ShardEmbeddings

STEP = (
    *("analyze", "dlrm-ddp:tables=8,rows=1000", "--batch", "64", "--mode", "training"),
    *("--target", "dgx-a100", "--ranks", "8", "--runtime"),
)


@pytest.fixture(name="command")
def _command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_a_captured_step_has_bags_of_fixed_lengths(command: Command) -> None:
    """Ranks do not tell each other sizes, and the report says what that takes."""
    eager = command(*STEP, "eager", "--pass", "shard-embeddings", "--format", "json")
    graph = command(*STEP, "cudagraph", "--pass", "shard-embeddings",
                    "--format", "json")  # fmt: skip

    assert graph.report["summary"]["time_us"] < eager.report["summary"]["time_us"]
    assert not [n for n in graph.report["nodes"] if "splits" in str(n["id"])]
    assert [n for n in eager.report["nodes"] if "splits" in str(n["id"])]
    codes = [d["code"] for d in graph.report["diagnostics"]]
    assert "fixed-lengths" in codes


def test_bags_whose_lengths_are_said_to_vary(command: Command) -> None:
    """What a user says of the bags holds, and cannot be captured."""
    given = (*STEP, "cudagraph", "--pass", "shard-embeddings{fixed-lengths=false}")

    assert "shard-embeddings{fixed-lengths=true}" in command.refused(given, 1)


def test_a_model_that_is_loaded() -> None:
    """A loaded model says it by its pass."""
    passes = [ShardEmbeddings(ranks=8, fixed_lengths=True)]
    model = perfc.load(
        "dlrm-ddp:tables=8,rows=1000",
        batch=64,
        mode="training",
        transforms=passes,
        ranks=8,
    )

    assert perfc.analyze(model, "dgx-a100", runtime="cudagraph").time_us > 0


@pytest.mark.parametrize("first", [True, False])
def test_stages_and_training_in_any_order(command: Command, first: bool) -> None:
    """A pipeline is cut after its backward pass is known, however passes are given."""
    passes = ["pipeline-parallel{stages=2,microbatches=2}", "training"]
    passes = passes if first else passes[::-1]
    model = "gpt2:layers=2,hidden=64,heads=4,seq=16,vocab=101"
    outcome = command("analyze", model, "--batch", "8", "--ranks", "2", "--target",
                      "dgx-a100", "--pass", passes[0], "--pass", passes[1])  # fmt: skip

    assert 0 == outcome.code
    assert "training" in outcome.out.partition("\n")[0]
