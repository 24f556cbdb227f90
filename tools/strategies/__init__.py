"""`perfc parallel`: strategies compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.strategies.models import StrategyModels
    from perfc.tools.strategies.parallel import MadMaxComparison
    from perfc.tools.strategies.question import Question
    from perfc.tools.strategies.report import Comparison
    from perfc.tools.strategies.strategies import compare
else:
    __getattr__ = door(
        __name__,
        {
            "models": ("StrategyModels",),
            "parallel": ("MadMaxComparison",),
            "question": ("Question",),
            "report": ("Comparison",),
            "strategies": ("compare",),
        },
    )

__all__ = [
    "Comparison",
    "MadMaxComparison",
    "Question",
    "StrategyModels",
    "compare",
]
