"""The fixture `perfc_budget` of pytest: a test that fails where a budget is broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def perfc_budget() -> Callable[[str | Path], None]:
    """Return a function that holds the budgets of a file.

    It fails the test where a limit is broken or a model does not fit, and raises a
    `PerfcError` where the file, or what it names, is at fault.
    """

    def hold(file: str | Path) -> None:
        from perfc.tools.checks import check, read_budgets

        found = check(read_budgets(Path(file)), str(file))
        if found.exit_code:
            pytest.fail(str(found), pytrace=False)

    return hold
