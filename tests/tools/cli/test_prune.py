"""`--prune SHARE`, as it is typed."""

from __future__ import annotations

import pytest
from tests.tools.command import Command

WORDS = ("analyze", "resnet18", "--batch", "8", "--target", "t4", "--format", "json")


def test_on_the_command_line(command: Command) -> None:
    """`--prune SHARE` is the pass, in training too."""
    by_option, by_pass = (
        command(*WORDS, "--mode", "training", *more).report
        for more in (("--prune", "0.3"), ("--pass", "prune-channels{share=0.3}"))
    )

    assert by_option == by_pass
    assert "pruned" in {remark["code"] for remark in by_option["diagnostics"]}


@pytest.mark.parametrize("share", ["1", "-0.1", "x", "nan", "inf"])
def test_a_share_that_is_none(command: Command, share: str) -> None:
    """It is one line, and nothing is printed."""
    outcome = command("analyze", "resnet18", "--prune", share, "--target", "t4")

    assert (2, "") == (outcome.code, outcome.out)
    assert "expected a share of 0 or more, below 1" in outcome.error


def test_no_share_on_the_command_line(command: Command) -> None:
    """0 is the analysis without it, byte for byte."""
    assert command(*WORDS).out == command(*WORDS, "--prune", "0").out
