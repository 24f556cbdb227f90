"""Running the command line in this process, as its user sees it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from perfc.tools.cli.command_line import main

WORKLOAD = "dlrm-ddp:tables=2,rows=1000"
"""A workload that takes little time."""

SMALL = (WORKLOAD, "--batch", "64")
"""The workload, with a batch for those that do not say otherwise."""


@attrs.frozen
class Outcome:
    """What a run leaves.

    Attributes:
        code: Exit code.
        out: Standard output.
        err: Standard error.

    """

    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        """The JSON on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line on standard error, without its prefix."""
        (line,) = self.err.splitlines()
        assert line.startswith("perfc: error: ")
        return line.removeprefix("perfc: error: ")


@attrs.frozen
class Command:
    """The `perfc` command."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Outcome:
        """Run it."""
        code = main(arguments)
        captured = self.capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    def analyze(self, *arguments: str, target: str = "v100") -> Outcome:
        """Run `analyze` on the small workload."""
        return self("analyze", *SMALL, "--target", target, *arguments)

    def refused(self, arguments: Sequence[str], code: int) -> str:
        """Return the error line of a run that must fail so, and print nothing."""
        outcome = self(*arguments)
        assert (code, "") == (outcome.code, outcome.out)
        return outcome.error
