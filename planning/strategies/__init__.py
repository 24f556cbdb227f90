"""Strategies of parallel training: their space, prices and search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.planning.strategies.price import (
        OBJECTIVES,
        PRICE,
        Objective,
        StrategyBound,
        StrategyPrice,
        least_interleaved_s,
        least_memory,
        least_share,
        least_step_s,
    )
    from perfc.planning.strategies.search import FAST, METHODS, Findings, Left, Search
    from perfc.planning.strategies.space import Refused, StrategySpace
    from perfc.planning.strategies.strategy import INTERLEAVED, Strategy
    from perfc.planning.strategies.text import read_strategy
else:
    __getattr__ = door(
        __name__,
        {
            "price": (
                "OBJECTIVES",
                "Objective",
                "PRICE",
                "StrategyBound",
                "StrategyPrice",
                "least_interleaved_s",
                "least_memory",
                "least_share",
                "least_step_s",
            ),
            "search": ("FAST", "Findings", "Left", "METHODS", "Search"),
            "space": ("Refused", "StrategySpace"),
            "strategy": ("INTERLEAVED", "Strategy"),
            "text": ("read_strategy",),
        },
    )

__all__ = [
    "FAST",
    "INTERLEAVED",
    "METHODS",
    "OBJECTIVES",
    "PRICE",
    "Findings",
    "Left",
    "Objective",
    "Refused",
    "Search",
    "Strategy",
    "StrategyBound",
    "StrategyPrice",
    "StrategySpace",
    "least_interleaved_s",
    "least_memory",
    "least_share",
    "least_step_s",
    "read_strategy",
]
