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
    from perfc.tools.strategies.pricer import How
    from perfc.tools.strategies.report import strategies_json, strategies_text
    from perfc.tools.strategies.strategies import Question, compare
else:
    __getattr__ = door(
        __name__,
        {
            "models": ("StrategyModels",),
            "parallel": ("outcome", "parallel_json", "parallel_text", "ranked"),
            "pricer": ("How",),
            "report": ("strategies_json", "strategies_text"),
            "strategies": ("Question", "compare"),
        },
    )

__all__ = [
    "How",
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
