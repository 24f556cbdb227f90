"""Pipelines, as typed: `--pass pipeline-parallel{...}` with and without `--ranks`."""

from __future__ import annotations

import pytest
from tests.tools.command import Command

MODEL = ("gpt2:layers=4,hidden=64,heads=4,seq=16,vocab=101", "--target", "dgx-a100")
STEP = (*MODEL, "--mode", "training", "--batch", "32")


@pytest.mark.parametrize(
    ("options", "classes"),
    [
        (("pipeline-parallel{stages=2,microbatches=4}",), [[0], [1]]),
        (
            ("pipeline-parallel{stages=2,microbatches=4,schedule=1f1b}", "--ranks=8"),
            [[0, 2, 4, 6], [1, 3, 5, 7]],
        ),
        (
            (
                "pipeline-parallel{stages=2,microbatches=4}",
                "--pass=tensor-parallel{ranks=2}",
                "--ranks=8",
            ),
            [[0, 1, 4, 5], [2, 3, 6, 7]],
        ),
    ],
)
def test_a_step_of_a_pipeline(
    command: Command, options: tuple[str, ...], classes: list[list[int]]
) -> None:
    """Stages are neighbours, replicas come after them; all communicate."""
    report = command("analyze", *STEP, "--pass", *options, "--format", "json").report

    assert classes == [rank["ranks"] for rank in report["ranks"]]
    assert all(rank["comm_us"] > 0 for rank in report["ranks"])
    assert 32 == report["model"]["batch"]


@pytest.mark.parametrize(
    ("options", "replicas", "whose"),
    [
        (("pipeline-parallel{stages=2,microbatches=4}",), 1, ""),
        (("tensor-parallel{ranks=4}",), 1, ""),
        (("tensor-parallel{ranks=2}", "--ranks=8"), 4, " in each of 4 replicas"),
        (("data-parallel{ranks=4}",), 4, " each"),
    ],
)
def test_samples_of_a_batch_that_ranks_share_are_counted_once(
    command: Command, options: tuple[str, ...], replicas: int, whose: str
) -> None:
    """Stages and parts of layers have one batch together: none of them has `each`."""
    asked = ("analyze", *STEP, "--pass", *options)
    model = command(*asked, "--format", "json").report["model"]
    headline = next(
        line for line in command(*asked).out.splitlines() if "samples/s" in line
    )

    assert replicas == model["replicas"]
    assert headline.endswith(f" samples/s{whose}")


def test_who_stands_still_is_late_and_others_wait(command: Command) -> None:
    """A rank waits where it has nothing else to run; the straggler holds them up."""
    piped = ("--pass", "pipeline-parallel{stages=4,microbatches=4}")
    still = ("--pass", "straggler{rank=2,us=50000}", "--format", "json")
    asked = ("analyze", *STEP, *piped, *still)
    ranks = {entry["ranks"][0]: entry for entry in command(*asked).report["ranks"]}

    assert all(
        r["compute_us"] + r["waiting_us"] <= r["time_us"] for r in ranks.values()
    )
    assert 2 == max(ranks, key=lambda number: ranks[number]["late_us"])
    assert 2 == min(ranks, key=lambda number: ranks[number]["waiting_us"])
    assert all(ranks[n]["waiting_us"] > 45e3 for n in (0, 1, 3))


def test_an_inference_is_piped(command: Command) -> None:
    """Forward alone: the second stage waits for the first."""
    options = ("--batch", "32", "--pass", "pipeline-parallel{stages=2,microbatches=4}")

    report = command("analyze", *MODEL, *options, "--format", "json").report

    first, second = report["ranks"]
    assert first["time_us"] < second["time_us"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (
            ("pipeline-parallel{stages=2,microbatches=5}",),
            1,
            "batch=32 does not divide into 5 microbatches: expected a multiple of 5",
        ),
        (
            ("pipeline-parallel{stages=20,microbatches=4}",),
            2,
            "fewer than 20 stages",
        ),
        (
            ("pipeline-parallel{stages=2,microbatches=0}",),
            2,
            "microbatches=0 of pipeline-parallel: expected 1 to 4,096",
        ),
        (
            ("pipeline-parallel{stages=2,microbatches=4,schedule=zigzag}",),
            2,
            "schedule='zigzag' of pipeline-parallel: expected gpipe, 1f1b, interl",
        ),
        (
            ("pipeline-parallel{stages=2,microbatches=4,schedule=interleaved}",),
            2,
            "chunks=1 of pipeline-parallel: interleaved, expected at least 2",
        ),
        (
            ("pipeline-parallel{stages=2,microbatches=4,chunks=2}",),
            2,
            "chunks=2 of pipeline-parallel: gpipe has one; give schedule=interleaved",
        ),
        (
            (
                "pipeline-parallel{stages=4,microbatches=6,schedule=interleaved,chunks=2}",
            ),
            2,
            "microbatches=6 of pipeline-parallel: interleaved, expected a multiple of",
        ),
        (
            ("pipeline-parallel{stages=2,microbatches=4}", "--ranks", "3"),
            2,
            "3 ranks do not divide into replicas of 2",
        ),
    ],
)
def test_what_cannot_be(
    command: Command, options: tuple[str, ...], code: int, says: str
) -> None:
    """One line says what was expected and what was found."""
    outcome = command("analyze", *STEP, "--pass", *options)

    assert code == outcome.code
    assert says in outcome.error
