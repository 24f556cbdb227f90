"""`perfc check`: budgets that a build must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.checks.budget_file import Budget, budget_of, read_budgets
    from perfc.tools.checks.checking import Check, check
    from perfc.tools.checks.forms import FORMATS
    from perfc.tools.checks.permission import allows_python
else:
    __getattr__ = door(
        __name__,
        {
            "budget_file": ("Budget", "budget_of", "read_budgets"),
            "checking": ("Check", "check"),
            "forms": ("FORMATS",),
            "permission": ("allows_python",),
        },
    )

__all__ = [
    "FORMATS",
    "Budget",
    "Check",
    "allows_python",
    "budget_of",
    "check",
    "read_budgets",
]
