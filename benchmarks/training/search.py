"""The least of a function of few parameters, the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

ROUNDS = 12
"""Each halves the step."""


def least(
    loss: Callable[[Mapping[str, float]], float],
    start: Mapping[str, float],
    limits: Mapping[str, tuple[float, float]],
    step: float = 0.4,
) -> dict[str, float]:
    """Return parameters at which *loss* is least near *start*.

    Pattern search: each parameter is tried a factor up and down, and the factor's
    logarithm halved once none helps. No random number, no library's version.

    Args:
        loss: Of parameters by name.
        start: Where to begin; above 0.
        limits: Least and most of each.
        step: Logarithm of the first factor.

    """
    best = dict(start)
    found = loss(best)
    for _ in range(ROUNDS):
        improved = True
        while improved:
            improved = False
            for name, (low, high) in limits.items():
                for factor in (math.exp(step), math.exp(-step)):
                    tried = {**best, name: min(max(best[name] * factor, low), high)}
                    if (value := loss(tried)) < found - 1e-6:
                        best, found, improved = tried, value, True
        step /= 2
    return best
