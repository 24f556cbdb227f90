"""`perfc parallel`: strategies compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.strategies.models import StrategyModels
    from perfc.tools.strategies.parallel import (
        outcome,
        parallel_json,
        parallel_text,
        ranked,
    )
    from perfc.tools.strategies.report import strategies_json, strategies_text
    from perfc.tools.strategies.strategies import Question, compare
else:
    __getattr__ = door(
        __name__,
        {
            "models": ("StrategyModels",),
            "parallel": ("outcome", "parallel_json", "parallel_text", "ranked"),
            "report": ("strategies_json", "strategies_text"),
            "strategies": ("Question", "compare"),
        },
    )

__all__ = [
    "Question",
    "StrategyModels",
    "compare",
    "outcome",
    "parallel_json",
    "parallel_text",
    "ranked",
    "strategies_json",
    "strategies_text",
]
