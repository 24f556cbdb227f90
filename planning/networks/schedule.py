"""Pipelines whose stages and links take different times: when a step ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import attrs

from perfc.passes.parallel import GPIPE, steps_of


@attrs.frozen(kw_only=True)
class StageTimes:
    """What one stage takes, in seconds.

    Attributes:
        forward_s: Of one microbatch.
        backward_s: Of one microbatch; 0 of an inference.
        sent_s: What its activation of a microbatch takes to the next stage.
        returned_s: What the gradient takes from the next stage to this one.
        tail_s: What comes after its last microbatch: gradients of its replicas added
            up, and the optimizer.

    """

    forward_s: float
    backward_s: float = 0.0
    sent_s: float = 0.0
    returned_s: float = 0.0
    tail_s: float = 0.0

    def busy_s(self, count: int) -> float:
        """Return the seconds in which its GPUs work, of *count* microbatches."""
        return (self.forward_s + self.backward_s) * count + self.tail_s


def flow_s(stages_s: Sequence[float], links_s: Sequence[float], count: int) -> float:
    """Return when *count* microbatches are through stages and the links behind them.

    Each stage and each link has one at a time, in order:
    `sum(stage + link) + (count - 1) max(stage, link)`.
    """
    both = [*stages_s, *links_s]
    return sum(both) + (count - 1) * max(both)


def step_s(stages: Sequence[StageTimes], count: int) -> float:
    """Return the seconds of a step: all forward, then all backward (GPipe).

    Args:
        stages: In order; what the last one sends is not counted.
        count: Microbatches.

    """
    links = stages[:-1]
    forward_s = flow_s([s.forward_s for s in stages], [s.sent_s for s in links], count)
    total_s, slowest_s, ends_s = 0.0, 0.0, 0.0
    for number in range(len(stages) - 1, -1, -1):
        stage = stages[number]
        back_s = stage.returned_s if number < len(links) else 0.0
        total_s += stage.backward_s + back_s
        slowest_s = max(slowest_s, stage.backward_s, back_s)
        ends_s = max(ends_s, total_s + (count - 1) * slowest_s + stage.tail_s)
    return forward_s + ends_s


def ordered_step_s(stages: Sequence[StageTimes], count: int, schedule: str) -> float:
    """Return the seconds of a step whose stages follow a schedule, event by event.

    Args:
        stages: In order.
        count: Microbatches.
        schedule: `gpipe` or `1f1b`.

    """
    if schedule == GPIPE:
        return step_s(stages, count)
    return max(run.end_s for run in stage_runs(stages, count, schedule))


class StageRun(NamedTuple):
    """What a stage, or the link behind it, does at a time.

    Attributes:
        stage: Number of the stage.
        microbatch: Which; -1 of what comes after the last one.
        backward: Whether it is of the backward pass.
        link: Whether it is sent: forward to the next stage, backward from there.
        start_s: When it begins.
        end_s: When it ends.

    """

    stage: int
    microbatch: int
    backward: bool
    link: bool
    start_s: float
    end_s: float


def stage_runs(
    stages: Sequence[StageTimes], count: int, schedule: str
) -> Sequence[StageRun]:
    """Return all that stages and links do in a step, event by event.

    Args:
        stages: In order; what the last one sends is left out.
        count: Microbatches.
        schedule: `gpipe` or `1f1b`.

    """
    runs: list[StageRun] = []
    last = len(stages) - 1
    training = any(stage.backward_s for stage in stages)
    left = [
        steps_of(schedule, s, last + 1, count, training=training)
        for s in range(last + 1)
    ]
    places = [0] * (last + 1)
    free_s = [0.0] * (last + 1)
    lines_s = {True: [0.0] * (last + 1), False: [0.0] * (last + 1)}
    ready_s: dict[tuple[int, int, bool], float] = {
        (0, number, False): 0.0 for number in range(count)
    }
    waiting = True
    while waiting:
        waiting = False
        for number, stage in enumerate(stages):
            while places[number] < len(left[number]):
                step = left[number][places[number]]
                ready = ready_s.get((number, step.microbatch, step.backward))
                if ready is None:
                    break
                waiting = True
                places[number] += 1
                taken_s = stage.backward_s if step.backward else stage.forward_s
                begin_s = max(free_s[number], ready)
                free_s[number] = begin_s + taken_s
                what = (step.microbatch, step.backward)
                runs.append(StageRun(number, *what, False, begin_s, free_s[number]))
                to = number - 1 if step.backward else number + 1
                if step.backward and to < 0:
                    continue
                key = (to, step.microbatch, step.backward)
                if to > last:  # backward begins where forward has ended
                    ready_s[last, step.microbatch, True] = free_s[number]
                    continue
                line = lines_s[step.backward]
                over = min(number, to)
                link = stages[over]
                sent_s = link.returned_s if step.backward else link.sent_s
                begin_s = max(line[over], free_s[number])
                line[over] = begin_s + sent_s
                runs.append(StageRun(over, *what, True, begin_s, line[over]))
                ready_s[key] = line[over]
    for number, (end_s, stage) in enumerate(zip(free_s, stages, strict=True)):
        runs.append(StageRun(number, -1, True, False, end_s, end_s + stage.tail_s))
    return runs


def completion_s(sequential_s: float, parts: int, communication_s: float) -> float:
    """Return the seconds of work in equal parts at once, and the communication after.

    Args:
        sequential_s: On one device.
        parts: How many devices.
        communication_s: What follows.

    """
    return sequential_s / parts + communication_s
