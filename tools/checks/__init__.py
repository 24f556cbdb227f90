"""`perfc check`: budgets that a build must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.checks.budget_file import Budget, read_budgets
    from perfc.tools.checks.checking import Check, check
    from perfc.tools.checks.forms import FORMATS
else:
    __getattr__ = door(
        __name__,
        {
            "budget_file": ("Budget", "read_budgets"),
            "checking": ("Check", "check"),
            "forms": ("FORMATS",),
        },
    )

__all__ = ["FORMATS", "Budget", "Check", "check", "read_budgets"]
