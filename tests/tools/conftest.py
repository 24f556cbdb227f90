"""Fixtures of the tests of the command line."""

from __future__ import annotations

import pytest
from tests.tools.command import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """The `perfc` command."""
    return Command(capsys)
