"""At most one option for each of many things: the most value within a budget.

The multiple-choice knapsack, solved exactly: the best value of every weight so far is
kept as a list of pairs that none beats in both (Nemhauser and Ullmann, 1969), and pairs
are dropped whose value cannot reach that of a solution that is known, whatever is
added: the fractions of the options on their convex hulls say so (Sinha and Zoltners,
1979). Things whose options are worth most for their weight come first, so that lists
stay short.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import Floats

MOST_PAIRS = 1 << 18
"""Longest list. A longer one keeps one pair for each of as many steps of the budget, so
that no weight is off by more than the share of a step for each thing."""

_SLACK = 1e-12
"""Share of a value that rounding may take."""


class Option(NamedTuple):
    """What one thing can be: what that weighs, and what it is worth."""

    weight: float
    value: float


def best_options(things: Sequence[Sequence[Option]], budget: float) -> list[int | None]:
    """Return which option each thing takes, None for none: the most value in all.

    Args:
        things: The options of each; weights are not negative.
        budget: What the weights may sum up to.

    """
    chosen: list[int | None] = [None] * len(things)
    useful = [_useful(options, budget) for options in things]
    order = sorted(
        (place for place, options in enumerate(useful) if options),
        key=lambda place: -_density(useful[place][0][1]),
    )
    layers = _layers([[one for _, one in useful[place]] for place in order], budget)
    at = int(np.argmax(layers[-1].values)) if layers else 0
    for place, layer in zip(reversed(order), reversed(layers), strict=True):
        taken = int(layer.taken[at])
        if taken >= 0:
            chosen[place] = useful[place][taken][0]
        at = int(layer.parents[at])
    return chosen


def _useful(options: Sequence[Option], budget: float) -> list[tuple[int, Option]]:
    """Return options that are worth something and fit, with their places.

    The lightest first, and none that is heavier than another and not worth more.
    """
    found: list[tuple[int, Option]] = []
    placed = sorted(
        enumerate(options), key=lambda each: (each[1].weight, -each[1].value)
    )
    for place, option in placed:
        least = found[-1][1].value if found else 0.0
        if option.value > least and option.weight <= budget:
            found.append((place, option))
    return found


def _density(option: Option) -> float:
    return option.value / option.weight if option.weight else float("inf")


@attrs.frozen(eq=False)
class _Layer:
    """Pairs that none beats, once some things have chosen: lightest first.

    Attributes:
        weights: In all, shape (pairs,).
        values: In all, growing.
        parents: Place of the pair before the last thing has chosen.
        taken: What that has chosen, -1 for nothing.

    """

    weights: Floats
    values: Floats
    parents: NDArray[np.int32]
    taken: NDArray[np.int16]


def _layers(things: Sequence[Sequence[Option]], budget: float) -> list[_Layer]:
    """Return the pairs after each thing."""
    rest = _Rest(things, budget)
    known = rest.greedy()
    weights, values = np.zeros(1), np.zeros(1)
    found: list[_Layer] = []
    for number, options in enumerate(things):
        # The pairs with one more thing, those left out that another beats.
        added = [(0.0, 0.0), *options]
        all_weights = np.concatenate([weights + weight for weight, _ in added])
        all_values = np.concatenate([values + value for _, value in added])
        parents = np.tile(np.arange(len(weights), dtype=np.int32), len(added))
        taken = np.repeat(np.arange(-1, len(options), dtype=np.int16), len(weights))
        order = np.lexsort((-all_values, all_weights))
        sorted_values = all_values[order]
        best = np.maximum.accumulate(sorted_values)
        better = np.ones(len(order), dtype=np.bool_)
        better[1:] = sorted_values[1:] > best[:-1]
        better &= all_weights[order] <= budget
        kept = order[better]
        layer = _Layer(all_weights[kept], all_values[kept], parents[kept], taken[kept])
        hopes = layer.values + rest.bound(number + 1, budget - layer.weights)
        known = max(known, float(layer.values.max()))
        hopeful = hopes >= known * (1 - _SLACK) - _SLACK
        layer = _shortened(_picked(layer, hopeful), budget)
        found.append(layer)
        weights, values = layer.weights, layer.values
    return found


def _picked(layer: _Layer, which: NDArray[np.bool_]) -> _Layer:
    return _Layer(
        layer.weights[which],
        layer.values[which],
        layer.parents[which],
        layer.taken[which],
    )


def _shortened(layer: _Layer, budget: float) -> _Layer:
    """Keep the best pair of each step of the budget, where there are too many."""
    if len(layer.weights) <= MOST_PAIRS:
        return layer
    steps = np.floor(layer.weights / budget * MOST_PAIRS)
    last = np.ones(len(steps), dtype=np.bool_)
    last[:-1] = steps[1:] > steps[:-1]
    return _picked(layer, last)


class _Rest:
    """What things that have not chosen can add at most.

    Of each the convex hull of its options, as steps of less and less worth for their
    weight; those of all the rest, best first, are a concave function of what is left.
    """

    def __init__(self, things: Sequence[Sequence[Option]], budget: float) -> None:
        self.things = things
        self.budget = budget
        self.steps = [_hull(options) for options in things]

    def bound(self, first: int, left: Floats) -> Floats:
        """Return the most that things from *first* on add, for what is left."""
        steps = [*itertools.chain.from_iterable(self.steps[first:])]
        steps.sort(key=lambda step: -_density(step))
        listed: Floats = np.array([(0.0, 0.0), *steps], dtype=np.float64)
        weights: Floats = np.cumsum(listed[:, 0])
        values: Floats = np.cumsum(listed[:, 1])
        found: Floats = np.interp(left, weights, values)
        return found

    def greedy(self) -> float:
        """Return the value of a solution: things take steps while they fit."""
        left, value = self.budget, 0.0
        blocked: set[int] = set()
        steps = [
            (step, thing) for thing, each in enumerate(self.steps) for step in each
        ]
        for step, thing in sorted(steps, key=lambda each: -_density(each[0])):
            if step.weight <= left and thing not in blocked:
                left, value = left - step.weight, value + step.value
            else:
                blocked.add(thing)  # its later steps build on this one
        return value


def _hull(options: Sequence[Option]) -> list[Option]:
    """Return the steps from option to option along the convex hull, from nothing on."""
    corners = [Option(0.0, 0.0)]
    for option in options:
        while len(corners) > 1 and _slope(corners[-1], option) >= _slope(
            corners[-2], corners[-1]
        ):
            corners.pop()
        corners.append(option)
    return [
        Option(after.weight - before.weight, after.value - before.value)
        for before, after in itertools.pairwise(corners)
    ]


def _slope(before: Option, after: Option) -> float:
    return _density(Option(after.weight - before.weight, after.value - before.value))
