"""The fixture `perfc_budget` of pytest: a test that fails where a budget is broken."""

from __future__ import annotations

import os
from typing import Protocol

import pytest

_UPDATE = "--perfc-update"


class HoldBudget(Protocol):
    """Holds a model to its budget, or fails the test."""

    def __call__(self, file: str | os.PathLike[str], **budget: object) -> None:
        """Hold the budgets of a file, or of a model the one that keywords say.

        Args:
            file: A file of budgets; with keywords, a model as `perfc analyze` takes it.
            budget: `target`, options of `perfc analyze` by their names in Python, and
                limits: the keys of a budget.

        """
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes baselines."""
    parser.getgroup("perfc").addoption(
        _UPDATE,
        action="store_true",
        help="Let perfc_budget write the baselines that regressions are against.",
    )


@pytest.fixture
def perfc_budget(pytestconfig: pytest.Config) -> HoldBudget:
    """Return a function that holds the budgets of a file, or one of keywords.

    It fails the test where a limit is broken or a model does not fit, and raises a
    `PerfcError` where the budget, or what it names, is at fault.
    """

    def hold(file: str | os.PathLike[str], **budget: object) -> None:
        from pathlib import Path

        from perfc.tools.checks import budget_of, check, read_budgets

        # A test is Python of the same checkout, and runs already.
        budgets = (
            [budget_of(file, budget)]
            if budget
            else read_budgets(Path(file), allow_python=True)
        )
        update = bool(pytestconfig.getoption(_UPDATE))
        found = check(budgets, str(file), update=update, option=_UPDATE)
        if found.exit_code:
            faults = "".join(f"  {line}\n" for line in found.faults)
            pytest.fail(f"over budget:\n{faults}\n{found}", pytrace=False)

    return hold
