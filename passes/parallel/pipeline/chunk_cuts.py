"""How consecutive layers are assigned to stages, or in chunks to stages in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import attrs

from perfc.passes.parallel.pipeline.microbatches import INTERLEAVED, Step, steps_of

BACKWARD_PER_FORWARD = 2.0
"""What backward takes for forward: two GEMMs for each, of input and weight."""

ROUNDS = 4
"""Microbatches as multiples of the stages by which cuts are compared. More repeat what
these do."""

_MOST_STEPS = 3_000_000
"""Steps that are followed at most, about two seconds; then the best so far is taken."""

_GAIN = 1e-6
"""Share by which a cut has to be faster: less is rounding."""


@attrs.frozen(eq=False)
class Costs:
    """What parts take.

    What crosses does so while a part computes: it counts where it takes longer.

    Attributes:
        until: What all layers before each take, and all of them.
        sent: Bytes that cross before each layer, and after the last.
        per_byte: What a byte takes that crosses.

    """

    until: Sequence[float]
    sent: Sequence[int]
    per_byte: float

    @classmethod
    def of(cls, work: Sequence[float], sent: Sequence[int], per_byte: float) -> Costs:
        """Collect them; *sent* is before each layer."""
        return cls([*accumulate(work, initial=0.0)], [*sent, 0], per_byte)

    def parts(self, ends: Sequence[int]) -> list[float]:
        """Return the cost of each part."""
        return [self._part(begin, end) for begin, end in pairwise(ends)]

    def _part(self, begin: int, end: int) -> float:
        moved = self.per_byte * max(self.sent[begin], self.sent[end])
        return max(self._work(begin, end), moved)

    def _work(self, begin: int, end: int) -> float:
        return self.until[end] - self.until[begin]

    def cut(self, parts: int, *, even: bool = False) -> tuple[int, ...]:
        """Return the first layer of each part, and the one after the last.

        The slowest is as fast as can be, or all are as even as can be: their squares
        add up to least. Of cuts that are as good, that with the least to send.
        """
        count = len(self.until) - 1
        cuts = {0: _Cut(0.0, 0, (0,))}  # by layers taken
        for part in range(parts):
            left = parts - part - 1
            first = part + 1 if left else count
            cuts = {
                end: self._longer(cuts, end, even=even)
                for end in range(first, count - left + 1)
            }
        return cuts[count].ends

    def _longer(self, cuts: Mapping[int, _Cut], end: int, *, even: bool) -> _Cut:
        """Return the best cut with one more part, which ends at a layer."""
        found: _Cut | None = None
        for begin in sorted((begin for begin in cuts if begin < end), reverse=True):
            least = self._work(begin, end)
            if found and (least**2 if even else least) > found.badness:
                break  # a longer part is worse still
            cut, cost = cuts[begin], self._part(begin, end)
            badness = cut.badness + cost**2 if even else max(cut.badness, cost)
            made = _Cut(badness, cut.sent + self.sent[end], (*cut.ends, end))
            found = made if found is None else min(found, made)
        assert found is not None  # every part has a layer
        return found


@attrs.frozen(order=True)
class _Cut:
    """Consecutive layers, cut into parts.

    Attributes:
        badness: What the slowest part takes, or squares of what all take.
        sent: Bytes that cross.
        ends: First layer of each part, and the one after the last.

    """

    badness: float
    sent: int
    ends: tuple[int, ...]


@attrs.frozen
class _Wait:
    """A step, and what it waits for.

    Attributes:
        stage: Where it runs, after what ran there.
        chunk: Which of all chunks.
        before: The place in the order of the step that it reads; None if there is none.
        factor: What it takes for forward of the chunk.

    """

    stage: int
    chunk: int
    before: int | None
    factor: float


@attrs.frozen(eq=False)
class ChunkSteps:
    """Interleaved steps of all stages, each after the steps that it waits for.

    Attributes:
        stages: How many stages.
        chunks: How many chunks, of all stages together.
        order: The steps.

    """

    stages: int
    chunks: int
    order: Sequence[_Wait]

    @classmethod
    def of(
        cls, stages: int, chunks: int, microbatches: int, *, training: bool
    ) -> ChunkSteps:
        """Order the steps.

        Args:
            stages: How many.
            chunks: How many chunks each has.
            microbatches: How many.
            training: Whether there is a backward pass.

        """
        count, total = min(microbatches, ROUNDS * stages), stages * chunks
        left = [
            steps_of(INTERLEAVED, s, stages, count, training=training, chunks=chunks)
            for s in range(stages)
        ]
        order = _ordered([iter(steps) for steps in left], total)
        return cls(stages, total, list(order))

    def time(self, costs: Sequence[float]) -> float:
        """Return when the last step ends.

        Args:
            costs: What forward of each chunk takes.

        """
        ends: list[float] = []
        free = [0.0] * self.stages
        for step in self.order:
            ready = 0.0 if step.before is None else ends[step.before]
            start = max(free[step.stage], ready)
            free[step.stage] = start + costs[step.chunk] * step.factor
            ends.append(free[step.stage])
        return max(free)

    def cut(self, costs: Costs) -> tuple[int, ...]:
        """Return the first layer of each chunk, and the one after the last.

        What counts is the whole schedule: a stage that has more in all of its chunks
        holds up the others, and so does a chunk after or before shorter ones.
        Of cuts with the least slowest chunk, and with the most even ones, layers go
        from chunk to chunk as long as steps end earlier, and no stage has more than
        the slowest had: of many microbatches that one decides.
        """
        starts = [costs.cut(self.chunks, even=even) for even in (False, True)]
        found = [self._improved(costs, ends) for ends in dict.fromkeys(starts)]
        return min(found, key=lambda ends: self.time(costs.parts(ends)))

    def _improved(self, costs: Costs, ends: tuple[int, ...]) -> tuple[int, ...]:
        parts = costs.parts(ends)
        most, best = self._slowest(parts) * (1 + _GAIN), self.time(parts)
        tries, last = _MOST_STEPS // len(self.order), list[int]()
        now = list(ends)
        while last != now and tries >= 0:
            last = list(now)
            for moved in _neighbours(now, self.stages):
                parts = costs.parts(moved)
                if self._slowest(parts) > most:
                    continue
                tries -= 1
                if tries < 0:
                    break
                time = self.time(parts)
                if time < best * (1 - _GAIN):
                    best, now[:] = time, moved
        return tuple(now)

    def _slowest(self, parts: Sequence[float]) -> float:
        return max(sum(parts[stage :: self.stages]) for stage in range(self.stages))


def _neighbours(ends: list[int], farthest: int) -> Iterator[list[int]]:
    """Yield cuts of which a chunk gets a layer of another, the nearest first.

    Those between move by one. *ends* may change meanwhile.
    """
    for count in range(1, farthest + 1):
        for first in range(1, len(ends) - count):
            for by in (-1, 1):
                last = first + count
                moved = [end + by for end in ends[first:last]]
                if ends[first - 1] < moved[0] and moved[-1] < ends[last]:
                    yield [*ends[:first], *moved, *ends[last:]]


def _ordered(left: Sequence[Iterator[Step]], chunks: int) -> Iterator[_Wait]:
    """Yield steps of stages, each as soon as what it reads is there."""
    places: dict[tuple[int, int, bool], int] = {}
    waiting = [next(steps, None) for steps in left]
    while any(waiting):
        for stage, steps in enumerate(left):
            while (step := waiting[stage]) is not None:
                chunk = step.chunk * len(left) + stage
                read = _read(step, chunk, chunks)
                if read is not None and read not in places:
                    break
                places[step.microbatch, chunk, step.backward] = len(places)
                before = None if read is None else places[read]
                factor = BACKWARD_PER_FORWARD if step.backward else 1.0
                yield _Wait(stage, chunk, before, factor)
                waiting[stage] = next(steps, None)


def _read(step: Step, chunk: int, chunks: int) -> tuple[int, int, bool] | None:
    """Return the result that a step reads: forward from below, backward from above."""
    if not step.backward:
        return (step.microbatch, chunk - 1, False) if chunk else None
    if chunk == chunks - 1:
        return step.microbatch, chunk, False
    return step.microbatch, chunk + 1, True
