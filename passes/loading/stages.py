"""Stages of an input pipeline, and the time of a step behind them.

Serial, a step waits for each stage: times add up. Overlapped, batches follow each
other through the stages while the device computes, and in the steady state the
slowest sets the pace: a stage has `min(workers, depth)` batches in progress, so that
one leaves it every `time / min(workers, depth)`; stages of one resource share it.

    h2d    copies to a device follow each other
    gpu    stages on the device take turns with the step
    cores  workers are at most as many as cores, where the number is known

The first batches, which fill the pipeline, are left out. (As SALIENT has it, arXiv
2110.08450.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

CORES, H2D, GPU = RESOURCES = ("cores", "h2d", "gpu")
"""What stages run on."""


@attrs.frozen
class Stage:
    """What is done with each batch before a step.

    Attributes:
        name: What it is called.
        time_us: What one batch takes one worker, microseconds.
        resource: One of `RESOURCES`.
        workers: How many work, each on a batch of its own.
        depth: How many batches may be on their way through it.

    """

    name: str
    time_us: float
    resource: str
    workers: int = 1
    depth: int = 1

    @property
    def pace_us(self) -> float:
        """Microseconds from one batch that leaves it to the next."""
        return self.time_us / min(self.workers, self.depth)


@attrs.frozen
class Limit:
    """What keeps batches from coming faster.

    Attributes:
        name: A stage, or the stages that share a resource.
        time_us: Microseconds from batch to batch, if it alone decides.

    """

    name: str
    time_us: float


@attrs.frozen
class Loading:
    """An input pipeline.

    Attributes:
        stages: Its stages, in order.
        overlapped: Whether batches are loaded while others are computed.
        cores: How many cores the workers have; None where nobody says.

    """

    stages: tuple[Stage, ...]
    overlapped: bool = True
    cores: int | None = None

    @property
    def serial_us(self) -> float:
        """Time of all stages, one after the other."""
        return math.fsum(stage.time_us for stage in self.stages)

    def of(self, resource: str) -> tuple[Stage, ...]:
        """Return the stages on a resource."""
        return tuple(stage for stage in self.stages if stage.resource == resource)

    def limits(self, step_us: float) -> Iterator[Limit]:
        """Yield all that may set the pace of overlapped batches.

        Args:
            step_us: What the step takes without data loading.

        """
        on_gpu = self.of(GPU)
        yield Limit(
            " and ".join(["the step", *(stage.name for stage in on_gpu)]),
            math.fsum((step_us, *(stage.time_us for stage in on_gpu))),
        )
        for stage in self.stages:
            yield Limit(stage.name, stage.pace_us)
        copies, computed = self.of(H2D), self.of(CORES)
        if len(copies) > 1:
            yield _together(copies, 1)
        if computed and self.cores is not None:
            yield _together(computed, self.cores)

    def slowest(self, step_us: float) -> Limit:
        """Return the limit that sets the pace; of equals the first."""
        return max(self.limits(step_us), key=lambda limit: limit.time_us)

    def iteration_us(self, step_us: float, *, overlapped: bool | None = None) -> float:
        """Return the time of a step with its data loading."""
        hidden = self.overlapped if overlapped is None else overlapped
        if hidden:
            return self.slowest(step_us).time_us
        return math.fsum((step_us, *(stage.time_us for stage in self.stages)))

    def with_faster(self, name: str, times: float) -> Loading:
        """Return it with one stage that is so many times as fast."""
        stages = [
            attrs.evolve(s, time_us=s.time_us / times) if s.name == name else s
            for s in self.stages
        ]
        return attrs.evolve(self, stages=tuple(stages))


def _together(stages: tuple[Stage, ...], servers: int) -> Limit:
    names = " and ".join(stage.name for stage in stages)
    return Limit(names, math.fsum(stage.time_us for stage in stages) / servers)
