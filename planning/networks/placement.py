"""Orders of the units of a network, and the best split of layers over each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from perfc.planning.networks.split import Cutter, Placed, Problem

_SWAPS = 400
"""Swaps of an order that are tried, at most: some seconds for 100 layers on 48 GPUs."""


def clustered(problem: Problem) -> list[int]:
    """Return units in the order of clusters of fast links.

    The two clusters with the fastest link between them are joined first (single
    linkage), end to end where the link is the fastest, so that the links between
    clusters are crossed once each.
    """
    numbers = range(len(problem.units))
    pairs = sorted(
        ((_goodness(problem, a, b), a, b) for b in numbers for a in range(b)),
        key=lambda pair: (*(-x for x in pair[0]), pair[1], pair[2]),
    )
    cluster = {number: [number] for number in numbers}
    for _, a, b in pairs:
        first, second = cluster[a], cluster[b]
        if first is not second:
            joined = _joined(problem, first, second)
            cluster.update(dict.fromkeys(joined, joined))
    return cluster[0]


def _goodness(problem: Problem, a: int, b: int) -> tuple[float, float]:
    """Return the rate of the slower direction, and minus its latency."""
    ways = problem.link(a, b), problem.link(b, a)
    return min(w.bytes_per_s for w in ways), -max(w.latency_s for w in ways)


def _joined(problem: Problem, a: list[int], b: list[int]) -> list[int]:
    turned = [(x, y) for x in (a, a[::-1]) for y in (b, b[::-1])]
    first, second = max(turned, key=lambda t: _goodness(problem, t[0][-1], t[1][0]))
    return [*first, *second]


@attrs.frozen(eq=False)
class Placer:
    """Finds where layers go.

    Attributes:
        problem: What is placed.

    """

    problem: Problem

    def place(self) -> Placed | None:
        """Return the best split found in which every unit has layers.

        Where there are fewer layers than units, some have none. Orders begin with
        clusters, and units swap places as long as steps get shorter.
        """
        skips = self.problem.layers < len(self.problem.units)
        return self._place(Cutter(self.problem, skips=skips))

    def fastest(self) -> Placed | None:
        """Return the best split found if units may have no layers."""
        cutter = Cutter(self.problem, skips=True)
        order = clustered(self.problem)
        found = [cutter.best(each) for each in (order, order[::-1])]
        known = [placed for placed in found if placed is not None]
        return min(known, key=self.problem.step_s, default=None)

    def _place(self, cutter: Cutter) -> Placed | None:
        order = clustered(self.problem)
        starts = (order, order[::-1], sorted(order))
        made = [(self._fast_s(cutter, each), n) for n, each in enumerate(starts)]
        order = starts[min(made)[1]]
        order = self._swapped(cutter, list(order))
        found = [cutter.best(each) for each in (order, *starts)]
        known = [placed for placed in found if placed is not None]
        return min(known, key=self.problem.step_s, default=None)

    def _fast_s(self, cutter: Cutter, order: Sequence[int]) -> float:
        """Return the seconds of a step in an order, by its slowest stage alone."""
        found = cutter.run(order, float("inf"), slowest=True)
        return float("inf") if found is None else self.problem.step_s(found)

    def _swapped(self, cutter: Cutter, order: list[int]) -> list[int]:
        best_s, tries, last = self._fast_s(cutter, order), _SWAPS, list[int]()
        while last != order:
            last = list(order)
            for a, b in self._pairs(order):
                if not tries:
                    return order
                tries -= 1
                order[a], order[b] = order[b], order[a]
                taken_s = self._fast_s(cutter, order)
                if taken_s < best_s * (1 - 1e-9):
                    best_s = taken_s
                else:
                    order[a], order[b] = order[b], order[a]
        return order

    def _pairs(self, order: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield places to swap, the nearest first; equal units are left alone."""
        units = self.problem.units
        for distance in range(1, len(order)):
            for a in range(len(order) - distance):
                b = a + distance
                if units[order[a]].node != units[order[b]].node:
                    yield a, b

    def fewest(self, within_s: float) -> Placed | None:
        """Return the split on the fewest GPUs whose step takes no longer, if any does.

        Numbers of GPUs are tried by halving, and then downwards: fewer are not slower
        as a rule, but for links.
        """
        cutter, order = Cutter(self.problem, skips=True), clustered(self.problem)
        orders = (order, order[::-1])
        total = sum(unit.gpus for unit in self.problem.units)
        for count in range(1, total + 1):
            for each in orders:
                for placed in cutter.candidates(each, count, within_s):
                    better = cutter.improved(placed)
                    if self.problem.step_s(better) <= within_s:
                        return better
        return None


def even(problem: Problem, order: Sequence[int]) -> Placed:
    """Return as many layers for each unit, for the first where they do not suffice."""
    count = min(len(order), problem.layers)
    ends = tuple(problem.layers * n // count for n in range(count + 1))
    return Placed(tuple(order[:count]), ends)
