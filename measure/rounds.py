"""Cases whose operands are made once, and which are timed in rounds.

What else runs on a CPU, and beside it, slows it for seconds at a time and hits calls of
microseconds one by one: many short visits, spread over as long as memory holds the
operands, tell what a call takes on average better than a long one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs
import torch

from perfc.ir.support import US
from perfc.measure.case import Call, Case, Family, Tensors, math_of
from perfc.measure.device import Device
from perfc.measure.timing import Timed, Timer, in_turn, mean_of

_MAX_SETS = 128
"""Sets of operands: small ones stay in the L2 as they do in a model."""

_SETS_SHARE = 2
"""All sets together take no more than this part of the free memory."""

_FEWEST_SETS = 2
_PREPARE_SECONDS = 0.01
_PREPARE_SECONDS_GPU = 0.03
"""Sets of operands are made for so long, two at least; how many bytes they have is said
in the row. What the first call loads or compiles does not count."""

ROUNDS = 12
"""Rounds on a CPU."""

_SURE_ROUNDS = 4
"""Rounds in which even a case that takes longer than its share of time is timed."""

_VISIT_SHARE = 3
"""Times as long as calls are timed a case may take in each round on average."""


@attrs.define(eq=False)
class Prepared:
    """A case that is ready to be timed, and what was found of it.

    Attributes:
        case: Which.
        calls: The same work on several sets of operands; each was called once.
        capturable: Whether a CUDA graph can hold a call.
        held_bytes: Memory that all sets take, about.
        rotated_bytes: Bytes that calls on all sets move, one after another: with fewer
            than the L2 holds, operands are still there when their turn comes again.
        spent_s: How long it was timed, warm-up included.
        rounds: What each round found, by way of timing.

    """

    case: Case
    calls: Sequence[Call]
    capturable: bool
    held_bytes: int
    rotated_bytes: int
    spent_s: float = 0.0
    rounds: list[Sequence[Timed]] = attrs.field(factory=list[Sequence[Timed]])

    @classmethod
    def of(
        cls, family: Family, case: Case, tensors: Tensors, device: Device
    ) -> Prepared:
        """Make the operands.

        Raises:
            RuntimeError: PyTorch cannot run it, or not in the memory there is.

        """
        held, moved = family.memory_bytes(case), int(case.work.bytes)
        seconds = _PREPARE_SECONDS_GPU if device.is_cuda else _PREPARE_SECONDS
        with torch.no_grad(), math_of(case.dtype):
            first = _called(family, case, tensors)
            device.synchronize()
            # How many sets of operands the L2 cannot hold, as far as memory goes.
            # Of a table only the rows that are looked up come into it.
            wanted = 2 * device.cache_bytes // max(moved, 1) + 2
            room = device.free_bytes() // _SETS_SHARE // max(held, 1)
            most = max(1, min(wanted, room, _MAX_SETS))
            # So many calls with the first one, fewer if they take long to make.
            calls = [first]
            end = time.monotonic() + seconds
            while len(calls) < most and (
                len(calls) < _FEWEST_SETS or time.monotonic() < end
            ):
                calls.append(_called(family, case, tensors))
        sets = len(calls)
        return cls(case, calls, family.capturable(case), held * sets, moved * sets)

    def is_due(self, number: int, timer: Timer) -> bool:
        """Whether it is timed in a round, or has had its share of the time."""
        share_s = number * _VISIT_SHARE * timer.seconds
        return number % (ROUNDS // _SURE_ROUNDS) == 0 or self.spent_s <= share_s

    def visit(self, timer: Timer) -> None:
        """Time it once more."""
        begin = time.perf_counter()
        with torch.no_grad(), math_of(self.case.dtype):
            self.rounds.append(timer.time(self.calls, capturable=self.capturable))
        self.spent_s += time.perf_counter() - begin

    def profiled(self) -> Call:
        """Return a call on the next operands each time, computed as it was timed."""
        following = in_turn(self.calls)

        def call() -> None:
            with torch.no_grad(), math_of(self.case.dtype):
                following()

        return call

    @property
    def call_seconds(self) -> float:
        """What a call took when it was timed last, its launch included."""
        return self.rounds[-1][0].median_us / US

    def needs_profiler(self, device: Device) -> bool:
        """Whether it was timed on a GPU, but by no graph."""
        last = self.rounds[-1] if self.rounds else ()
        return device.is_cuda and bool(last) and last[-1].timing == "event"

    def result(self) -> list[Timed]:
        """Return the mean of the rounds of each way of timing; nothing before any."""
        return [mean_of(way) for way in zip(*self.rounds, strict=True)]


def _called(family: Family, case: Case, tensors: Tensors) -> Call:
    """Return a call that was called once: an optimizer makes its states then."""
    call = family.prepare(case, tensors)
    call()
    return call
