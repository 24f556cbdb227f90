"""Layers on units of a network: what a split takes, and the best one for an order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import attrs
import numpy as np
import numpy.typing as npt

from perfc.costmodels.kernels import Floats
from perfc.planning.networks.compression import Adaptive
from perfc.planning.networks.layer_prices import LayerPrices, Sums
from perfc.planning.networks.network import Link, Network
from perfc.planning.networks.schedule import StageTimes, ordered_step_s

_SLACK = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0, 6.0)
"""Multiples of the least slowest stage within which the shortest way is looked for."""

_GAIN = 1e-9
"""Share by which a split has to be faster: less is rounding."""


@attrs.frozen(eq=False, kw_only=True)
class Unit:
    """GPUs of a node that compute one stage, each a part of every microbatch.

    Attributes:
        node: Which of the network.
        gpus: How many.
        prices: What layers take, for its part of a microbatch.
        limit_bytes: Memory of a GPU.

    """

    node: int
    gpus: int
    prices: LayerPrices
    limit_bytes: float


@attrs.frozen(eq=False)
class Placed:
    """Layers on units in order.

    Attributes:
        units: Which of the problem's units, in order.
        ends: First layer of each, and the one after the last.

    """

    units: tuple[int, ...]
    ends: tuple[int, ...]


@attrs.frozen(eq=False, kw_only=True)
class Problem:
    """What is placed, and where.

    Attributes:
        network: The network.
        units: Where stages can be.
        sent_bytes: What crosses each cut for a microbatch, compressed, shape (L + 1,).
        microbatches: How many.
        schedule: `gpipe` or `1f1b`.
        ratio: Of every link, where none adapts.
        adaptive: How ratios follow from the links of a split: then `sent_bytes` are
            those of the largest ratio, and no split is faster than they say.

    """

    network: Network
    units: Sequence[Unit]
    sent_bytes: Floats
    microbatches: int
    schedule: str
    ratio: float = 1.0
    adaptive: Adaptive | None = None

    @property
    def layers(self) -> int:
        """How many layers."""
        return len(self.sent_bytes) - 1

    def link(self, a: int, b: int) -> Link:
        """Return the way from a unit to another."""
        return self.network.link(self.units[a].node, self.units[b].node)

    def stage_times(self, placed: Placed, *, adapt: bool = True) -> list[StageTimes]:
        """Return the times of each stage of a split.

        Args:
            placed: The split.
            adapt: Whether ratios do that adapt; else all are the largest.

        """
        found: list[StageTimes] = []
        sent, coded = self._links(placed, adapt=adapt)
        for place, (unit, (begin, end)) in enumerate(
            zip(placed.units, pairwise(placed.ends), strict=True)
        ):
            sums, prices = self.sums(unit), self.units[unit].prices
            trains = bool(sums.backward_s[-1])
            forward_s, backward_s = sums.span(begin, end)
            before, behind = coded[place], coded[place + 1]
            restore_s = before * prices.decode_s[begin] + behind * prices.encode_s[end]
            select_s = before * prices.encode_s[begin] + behind * prices.decode_s[end]
            sent_s = back_s = 0.0
            if place + 1 < len(placed.units):
                after = placed.units[place + 1]
                sent_s = self.link(unit, after).seconds(sent[place])
                back_s = self.link(after, unit).seconds(sent[place])
            found.append(
                StageTimes(
                    forward_s=forward_s + restore_s,
                    backward_s=backward_s + trains * select_s,
                    sent_s=sent_s,
                    returned_s=back_s if trains else 0.0,
                    tail_s=self._tail_s(unit, begin, end),
                )
            )
        return found

    def _links(self, placed: Placed, *, adapt: bool) -> tuple[list[float], list[bool]]:
        """Return the bytes behind each stage, and at which cuts tensors shrink."""
        cuts = placed.ends[1:-1]
        if self.adaptive is None or not adapt:
            sent = [float(self.sent_bytes[cut]) for cut in cuts]
            return sent, [True] * len(placed.ends)
        how, crossing = self.adaptive.compression, self.adaptive.crossing
        pairs = zip(cuts, self.ratios(placed), strict=True)
        sent = [crossing.sent(cut, how, ratio) for cut, ratio in pairs]
        smaller = [s < crossing.whole(cut) for s, cut in zip(sent, cuts, strict=True)]
        return sent, [True, *smaller, True]

    def ratios(self, placed: Placed) -> list[float]:
        """Return the ratio of the link behind each stage but the last.

        Those that adapt are such that no link is slower than the slowest of its
        direction: activations and gradients wait for each other.
        """
        cuts = placed.ends[1:-1]
        if self.adaptive is None:
            return [self.ratio] * len(cuts)
        how, whole = self.adaptive.compression, self.adaptive.crossing.whole
        links = [
            (a, b, whole(cut))
            for (a, b), cut in zip(pairwise(placed.units), cuts, strict=True)
        ]
        there = how.ratios([self.link(a, b).seconds(size) for a, b, size in links])
        if not cuts or not self.sums(placed.units[0]).backward_s[-1]:
            return there
        back = how.ratios([self.link(b, a).seconds(size) for a, b, size in links])
        return list(map(max, there, back))

    def _tail_s(self, number: int, begin: int, end: int) -> float:
        """Return the seconds of gradients added up in a ring, and of the optimizer."""
        unit, sums = self.units[number], self.sums(number)
        update_s = float(sums.update_s[end] - sums.update_s[begin])
        shared = float(sums.gradient_bytes[end] - sums.gradient_bytes[begin])
        if unit.gpus == 1 or not shared:
            return update_s
        link, turns = self.link(number, number), 2 * (unit.gpus - 1)
        return update_s + turns * link.seconds(shared / unit.gpus)

    def step_s(self, placed: Placed) -> float:
        """Return the seconds of a step."""
        return ordered_step_s(
            self.stage_times(placed), self.microbatches, self.schedule
        )

    def memory(self, placed: Placed) -> list[float]:
        """Return the bytes that a GPU of each stage needs."""
        stages = len(placed.units)
        spans = zip(placed.units, pairwise(placed.ends), strict=True)
        return [
            float(self._bytes(unit, self.kept(stages - place))[begin, end])
            for place, (unit, (begin, end)) in enumerate(spans)
        ]

    def kept(self, left: int) -> int:
        """Return how many microbatches a stage keeps, with so many from it on."""
        return min(left, self.microbatches) if self.in_turn else self.microbatches

    @property
    def in_turn(self) -> bool:
        """Whether backward begins before forward has ended."""
        return self.schedule != "gpipe"

    def fits(self, placed: Placed) -> bool:
        """Whether every stage has the memory that it needs."""
        limits = [self.units[unit].limit_bytes for unit in placed.units]
        needs = self.memory(placed)
        return all(need <= limit for need, limit in zip(needs, limits, strict=True))

    def sums(self, unit: int) -> Sums:
        """Return the sums of layers on a unit, kept by its prices."""
        return self._sums[id(self.units[unit].prices)]

    @cached_property
    def _sums(self) -> dict[int, Sums]:
        return {id(u.prices): Sums.of(u.prices) for u in self.units}

    def _bytes(self, unit: int, kept: int) -> Floats:
        """Return the bytes that layers a up to b need, shape (L + 1, L + 1)."""
        sums = self.sums(unit)
        key = id(self.units[unit].prices), kept
        if key not in self._needs:
            held = sums.lasting_bytes + kept * sums.saved_bytes
            self._needs[key] = held[None, :] - held[:, None] + sums.most_passing
        return self._needs[key]

    @cached_property
    def _needs(self) -> dict[tuple[int, int], Floats]:
        return {}

    def stage_s(self, unit: int, left: int) -> Floats:
        """Return the seconds of layers a up to b there, forward and backward.

        Shape (L + 1, L + 1); infinite where there are none, or no memory for them.

        Args:
            unit: Where.
            left: Stages from it on, at most.

        """
        kept = self.kept(left)
        key = (id(self.units[unit].prices), kept)
        if key in self._stages:
            return self._stages[key]
        sums, prices = self.sums(unit), self.units[unit].prices
        both = sums.forward_s + sums.backward_s
        cross = prices.encode_s + prices.decode_s
        trains = bool(sums.backward_s[-1])
        begin = cross if trains else prices.decode_s
        end = cross if trains else prices.encode_s
        made = both[None, :] - both[:, None] + begin[:, None] + end[None, :]
        made[np.tril_indices(len(both))] = np.inf
        made[self._bytes(unit, kept) > self.units[unit].limit_bytes] = np.inf
        self._stages[key] = made
        return made

    @cached_property
    def _stages(self) -> dict[tuple[int, int], Floats]:
        return {}

    def cuts_s(self, a: int, b: int) -> Floats:
        """Return the seconds of crossing each cut between units, there and back."""
        key = self.units[a].node, self.units[b].node
        if key not in self._cuts:
            there, back = self.network.link(*key), self.network.link(key[1], key[0])
            trains = bool(self.sums(a).backward_s[-1])
            sent = self.sent_bytes
            made = there.latency_s + sent / there.bytes_per_s
            if trains:
                made = made + back.latency_s + sent / back.bytes_per_s
            self._cuts[key] = np.where(sent > 0, made, 0.0)
        return self._cuts[key]

    @cached_property
    def _cuts(self) -> dict[tuple[int, int], Floats]:
        return {}


@attrs.frozen(eq=False)
class Cutter:
    """Cuts layers into stages for an order of units, by dynamic programming.

    Attributes:
        problem: What is placed.
        skips: Whether units may have no layers.

    """

    problem: Problem
    skips: bool = False

    def best(self, order: Sequence[int]) -> Placed | None:
        """Return the fastest split that fits, then improved layer by layer.

        The least slowest stage or link is found first, then, within multiples of that,
        the shortest way through all stages: a step is the way of one microbatch, and
        the slowest stage or link for each of the others.
        """
        found = min(self.candidates(order), key=self.problem.step_s, default=None)
        return None if found is None else self.improved(found)

    def candidates(
        self, order: Sequence[int], gpus: int = 0, within_s: float = math.inf
    ) -> Iterator[Placed]:
        """Yield splits within several limits on the slowest stage.

        Args:
            order: Units.
            gpus: With how many GPUs exactly; 0 for any number.
            within_s: What a step may take: none are yielded if the slowest alone does.

        """
        first = self.run(order, np.inf, slowest=True, gpus=gpus)
        if first is None:
            return
        least = self.slowest_s(first)
        # In turn, both directions of a link are at work at once.
        alone_s = least * self.problem.microbatches / (1 + self.problem.in_turn)
        if alone_s > within_s * (1 + _GAIN):
            return
        yield first
        for slack in _SLACK:
            found = self.run(order, least * slack * (1 + _GAIN), gpus=gpus)
            if found is not None:
                yield found

    def slowest_s(self, placed: Placed) -> float:
        """Return the most that a stage or a link takes, there and back.

        With the largest ratios: no split of a problem that adapts is faster.
        """
        times = self.problem.stage_times(placed, adapt=False)
        stages = max(t.forward_s + t.backward_s for t in times)
        return max(stages, *(t.sent_s + t.returned_s for t in times))

    def run(
        self,
        order: Sequence[int],
        most_s: float,
        *,
        slowest: bool = False,
        gpus: int = 0,
    ) -> Placed | None:
        """Return the split whose stages and links add up to least, or None.

        Args:
            order: Units.
            most_s: What none of them may exceed.
            slowest: Whether the slowest counts instead of all together.
            gpus: With how many GPUs exactly; 0 for any number.

        """
        tables = self._tables(order, most_s, slowest=slowest, gpus=gpus)
        count = self.problem.layers
        ends = range(len(order)) if self.skips else [len(order) - 1]
        row = gpus
        place = min(ends, key=lambda at: tables[at].cost[row, count], default=None)
        if place is None or not np.isfinite(tables[place].cost[row, count]):
            return None
        units: list[int] = []
        cuts = [count]
        while place >= 0:
            units.append(order[place])
            table, cut = tables[place], cuts[-1]
            begin = int(table.begin[row, cut])
            before = int(table.before[row, begin])
            row -= self.problem.units[order[place]].gpus if gpus else 0
            cuts.append(begin)
            place = before
        return Placed(tuple(reversed(units)), tuple(reversed(cuts)))

    def _tables(
        self, order: Sequence[int], most_s: float, *, slowest: bool, gpus: int
    ) -> list[_Table]:
        """Return the cost of layers up to each cut, the last on each unit."""
        problem, size = self.problem, self.problem.layers + 1
        join = np.maximum if slowest else np.add
        tables: list[_Table] = []
        # Units of one node cross the same links: of those before, a unit asks the one
        # of each node that costs least up to a cut.
        nearest: dict[int, tuple[int, Floats, npt.NDArray[np.int64]]] = {}
        for place, unit in enumerate(order):
            weight = problem.units[unit].gpus if gpus else 0
            reach = np.full((gpus + 1, size), np.inf)
            before = np.full((gpus + 1, size), -1)
            if self.skips or not place:
                reach[0, 0] = 0.0
            for other, least, places in nearest.values():
                cuts = problem.cuts_s(other, unit)
                cuts = np.where(cuts > most_s, np.inf, cuts)
                made = join(least, cuts[None, :])
                better = (made < reach) | ((made == reach) & (places < before))
                reach[better] = made[better]
                before[better] = places[better]
            stage = problem.stage_s(unit, len(order) - place)
            stage = np.where(stage > most_s, np.inf, stage)
            cost = np.full((gpus + 1, size), np.inf)
            begin = np.zeros((gpus + 1, size), dtype=np.int64)
            shifted = np.full((gpus + 1, size), np.inf)
            shifted_before = np.full((gpus + 1, size), -1)
            left = max(0, gpus + 1 - weight)
            shifted[gpus + 1 - left :] = reach[:left]
            shifted_before[gpus + 1 - left :] = before[:left]
            for row in range(gpus + 1):
                if np.isfinite(shifted[row]).any():
                    both = join(shifted[row][:, None], stage)
                    begin[row] = both.argmin(axis=0)
                    cost[row] = both.min(axis=0)
            tables.append(_Table(cost, begin, shifted_before))
            if not self.skips:
                nearest.clear()
            node, places = problem.units[unit].node, np.full(cost.shape, place)
            if node in nearest:
                _, least, known = nearest[node]
                places = np.where(cost < least, place, known)
                cost = np.minimum(cost, least)
            nearest[node] = unit, cost, places
        return tables

    def improved(self, placed: Placed) -> Placed:
        """Return a split that moving one layer to the next stage makes no faster."""
        problem = self.problem
        best_s, last = problem.step_s(placed), None
        while last is not placed:
            last = placed
            for moved in neighbours(placed):
                taken_s = problem.step_s(moved)
                if taken_s < best_s * (1 - _GAIN) and problem.fits(moved):
                    placed, best_s = moved, taken_s
                    break
        return placed


def neighbours(placed: Placed) -> Iterator[Placed]:
    """Yield splits in which one layer has gone to the stage before or behind."""
    for cut in range(1, len(placed.ends) - 1):
        for by in (-1, 1):
            ends = list(placed.ends)
            ends[cut] += by
            if ends[cut - 1] < ends[cut] < ends[cut + 1]:
                yield attrs.evolve(placed, ends=tuple(ends))


@attrs.frozen(eq=False)
class _Table:
    """Costs of layers up to each cut, the last of them on one unit.

    Rows are numbers of GPUs in use, one row if they do not count.

    Attributes:
        cost: Of all stages and links so far, shape (rows, L + 1).
        begin: First layer there.
        before: Place of the unit before, by the first layer here; -1 if there is none.

    """

    cost: Floats
    begin: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]
