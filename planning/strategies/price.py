"""What a strategy costs: time, memory and money, and how strategies are ranked."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

import attrs

from perfc.ir import Diagnostic
from perfc.passes.timing import TimeErrors
from perfc.planning.plans import grades
from perfc.planning.strategies.strategy import Strategy

THROUGHPUT, MEMORY = "throughput", "memory"

PRICE = "price"
"""The objective that a sample costs as little money as can be."""

OBJECTIVES = (THROUGHPUT, MEMORY, PRICE)
"""Samples a second, memory of the GPU that needs most, money for a sample."""

BUBBLE = "bubble"
_HOUR_S = 3600.0
_MILLION = 1e6
_HALVINGS = 30


@attrs.frozen(kw_only=True)
class StrategyPrice:
    """What one step takes with a strategy.

    Attributes:
        strategy: The strategy.
        samples: Of all GPUs together.
        step_s: Time of the step.
        low_s: 5th percentile of the time.
        high_s: 95th percentile.
        exposed_s: Communication that hides behind nothing, on the rank that ends last.
        bubble_s: How long a GPU of a pipeline waits for other stages and does nothing,
            on average.
        shares: Share of the critical path that each thing limits, by its name: the
            host, compute, memory, the network.
        parameters_bytes: What parameters take on the GPU that needs most memory.
        peak_bytes: All that it needs.
        limit_bytes: What it may need.
        energy_j: Of the step, all boards together; None if that is not known.
        diagnostics: Remarks on the model spread so.
        errors: What the time of a sample is off; None if nobody knows.

    """

    strategy: Strategy
    samples: int
    step_s: float
    low_s: float
    high_s: float
    exposed_s: float
    bubble_s: float
    shares: Mapping[str, float]
    parameters_bytes: float
    peak_bytes: float
    limit_bytes: float
    energy_j: float | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    errors: TimeErrors | None = None

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all GPUs together."""
        return self.samples / self.step_s

    @property
    def missing_bytes(self) -> float:
        """How much more memory a GPU needs than it may; 0 if it fits."""
        return max(0.0, self.peak_bytes - self.limit_bytes)

    @property
    def bound(self) -> str:
        """What takes most of the step: `bubble`, or what limits the rest of it."""
        left = 1 - self.bubble_s / self.step_s
        parts = {name: share * left for name, share in self.shares.items()}
        parts[BUBBLE] = 1 - left
        return max(parts, key=parts.__getitem__)

    def usd_per_million(self, usd_per_hour: float) -> float:
        """Return the cost of a million samples, in US dollars.

        Args:
            usd_per_hour: Price of one GPU.

        """
        gpu_hours = self.strategy.ranks * self.step_s / _HOUR_S
        return gpu_hours * usd_per_hour / self.samples * _MILLION


@attrs.frozen(kw_only=True)
class StrategyBound:
    """What a strategy takes at least.

    Attributes:
        samples: Of all GPUs together.
        step_s: Time of the step.
        peak_bytes: Memory of the GPU that needs most.

    """

    samples: int
    step_s: float = 0.0
    peak_bytes: float = 0.0


@attrs.frozen
class Objective:
    """What strategies are ranked by.

    Attributes:
        name: One of `OBJECTIVES`.

    """

    name: str = THROUGHPUT

    def cost(self, strategy: Strategy, found: StrategyPrice | StrategyBound) -> float:
        """Return a number that is the smaller the better."""
        if self.name == MEMORY:
            return found.peak_bytes
        per_sample_s = found.step_s / found.samples
        if self.name == PRICE:
            return per_sample_s * strategy.ranks
        return per_sample_s

    def ranked(self, prices: Sequence[StrategyPrice]) -> list[StrategyPrice]:
        """Return strategies, what fits first, the best first.

        What does not fit comes in the order of what is missing. Of equals the faster
        comes first, then that of fewer GPUs, then by name.
        """
        found = sorted(prices, key=lambda one: (one.strategy.ranks, str(one.strategy)))
        columns = (
            grades([one.missing_bytes for one in found]),
            grades([self.cost(one.strategy, one) for one in found]),
            grades([one.step_s / one.samples for one in found]),
        )
        rows = sorted(zip(*columns, range(len(found)), strict=True))
        return [found[number] for *_, number in rows]


def least_share(microbatches: int, stages: int) -> float:
    """Return the least factor by which a step exceeds one microbatch's time.

    A stage waits for those before it, in forward and in backward, and computes all
    microbatches: with times d_i of a microbatch the step takes `sum(d_i, i < s) +
    m * d_s` or more for each s. The largest is least where d_s falls by a factor
    of 1 - 1/m from stage to stage, and then it is D / (1 - (1 - 1/m)^p) for the sum D.

    Args:
        microbatches: m.
        stages: p.

    Returns:
        The factor of D.

    """
    return 1 / (1 - (1 - 1 / microbatches) ** stages)


def least_step_s(layers_s: Sequence[float], microbatches: int, stages: int) -> float:
    """Return the least seconds of a pipeline that is cut between layers only.

    As `least_share`, for the best of all cuts: stage s ends at the last layer up to
    which `sum(d_i, i < s) + m * d_s` stays below a time. The time is found by halving.

    Args:
        layers_s: Of each layer what one microbatch takes, in order.
        microbatches: m.
        stages: How many, at most.

    """
    ends = list(accumulate(layers_s, initial=0.0))

    def fits(time_s: float) -> bool:
        start = 0
        for _ in range(stages):
            most_s = ends[start] + (time_s - ends[start]) / microbatches
            end = bisect_right(ends, most_s) - 1
            if end <= start:
                break  # It takes no layer, nor do those after: maybe a million
            start = end
        return start == len(layers_s)

    low_s, high_s = 0.0, microbatches * ends[-1]
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if fits(middle_s) else (middle_s, high_s)
    return low_s  # the end of the bracket that is a lower bound on the step


def least_interleaved_s(
    whole_s: float, layers_s: Sequence[float], microbatches: int
) -> float:
    """Return the least seconds of a pipeline whose stages have several chunks.

    A microbatch goes through all layers, forward and back, and some stage has the
    slowest layer for each of them. Chunks of a stage may be anywhere, so that stages do
    not wait for all that is in front.

    Args:
        whole_s: What one microbatch takes.
        layers_s: Of each layer what one microbatch takes.
        microbatches: How many.

    """
    return max(whole_s, microbatches * max(layers_s, default=0.0))


def least_memory(
    lasting_bytes: float, saved_bytes: float, kept: Sequence[int]
) -> float:
    """Return the least bytes of the stage of a pipeline that needs most memory.

    Stage s keeps k_s microbatches for backward at once, of each its part of what a
    microbatch saves. Parts add up to S and L over all stages, so that any weighted mean
    of the needs of stages is a bound: with equal weights (L + S min(k)) / p, with
    weights 1 / k_s (S + L / max(k)) / sum(1 / k_s).

    Args:
        lasting_bytes: L, what is there throughout, of all stages together.
        saved_bytes: S, what one microbatch saves, of all stages together.
        kept: k_s of each stage, at least 1.

    """
    weights = math.fsum(1 / count for count in kept)
    return max(
        (lasting_bytes + saved_bytes * min(kept)) / len(kept),
        (saved_bytes + lasting_bytes / max(kept)) / weights,
    )
