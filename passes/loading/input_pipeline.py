"""The pass `input-pipeline`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np

from perfc import ir
from perfc.ir.launch import HOST_KINDS
from perfc.ir.support import US
from perfc.passes.base import Pass, PassContext
from perfc.passes.facts import DATA_LOADING, HOSTED, KERNEL_COST, HostedLaunches
from perfc.passes.loading.stage_file import read_loading
from perfc.passes.loading.stages import GPU, Loading
from perfc.passes.timing import StreamSchedule

_FILE = -1
"""Depth that stands for the file's."""


@attrs.frozen
class LoadedStep:
    """A step behind an input pipeline; microseconds.

    Attributes:
        loading: The pipeline.
        step_us: The step without data loading.

    """

    loading: Loading
    step_us: float

    @property
    def iteration_us(self) -> float:
        """The step with it."""
        return self.loading.iteration_us(self.step_us)

    @property
    def exposed_us(self) -> float:
        """What data loading adds."""
        return self.iteration_us - self.step_us

    @property
    def serial_us(self) -> float:
        """The step if nothing was hidden."""
        return self.loading.iteration_us(self.step_us, overlapped=False)

    @property
    def overlapped_us(self) -> float:
        """The step if batches were loaded while others are computed."""
        return self.loading.iteration_us(self.step_us, overlapped=True)

    def saved_us(self, stage: str, times: float = 2.0) -> float:
        """Return the saving of the step if a stage is so many times as fast."""
        faster = self.loading.with_faster(stage, times)
        return self.iteration_us - faster.iteration_us(self.step_us)

    def kept_us(self, saved_us: float) -> float:
        """Return the part of a saving in the step that loading does not hide."""
        faster_us = max(0.0, self.step_us - saved_us)
        return self.iteration_us - self.loading.iteration_us(faster_us)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a report."""
        loading = self.loading
        return {
            "mode": "overlapped" if loading.overlapped else "serial",
            "cores": loading.cores,
            "step_us": self.step_us,
            "iteration_us": self.iteration_us,
            "exposed_us": self.exposed_us,
            "serial_us": self.serial_us,
            "overlapped_us": self.overlapped_us,
            "saved_by_hiding_us": self.serial_us - self.overlapped_us,
            "slowest": loading.slowest(self.step_us).name,
            "stages": [
                {
                    "name": stage.name,
                    "resource": stage.resource,
                    "workers": stage.workers,
                    "depth": stage.depth,
                    "time_us": stage.time_us,
                    "pace_us": stage.pace_us,
                    "saved_2x_us": self.saved_us(stage.name),
                }
                for stage in loading.stages
            ],
        }


INPUT_PIPELINE: ir.AnnotationKey[LoadedStep | None] = ir.AnnotationKey(
    "time.input_pipeline", ir.Program
)
"""The step behind its input pipeline; None where that is switched off."""


@attrs.frozen
class InputPipeline(Pass):
    """Let every step wait for its batch, as the stages of a file bring it.

    Serial, the host waits for each stage before the step; overlapped, for what is left
    of the slowest once the step before is through. The waits stand at the start of each
    rank's step, as host tasks whose time the file states: `data loading`.

    Attributes:
        file: The stages (`stage_file.py`).
        depth: Batches on their way in stages that do not say it, in place of the
            file's; 0 switches data loading off, -1 is what the file says.

    """

    name: ClassVar[str] = "input-pipeline"
    requires: ClassVar[frozenset[ir.AnyKey]] = frozenset({HOSTED, KERNEL_COST})
    provides: ClassVar[frozenset[ir.AnyKey]] = frozenset({HOSTED, INPUT_PIPELINE})
    runs_before: ClassVar[frozenset[str]] = frozenset({"stream-schedule"})

    file: str
    depth: int = _FILE

    def __attrs_post_init__(self) -> None:
        """Check the options."""
        if self.depth < _FILE:
            msg = f"depth={self.depth} of {self.name}: expected 0 or more"
            raise ir.UsageError(msg)

    def run(self, program: ir.Program, ctx: PassContext) -> None:
        """Put the waits in front."""
        values = {name: float(n) for name, n in program.bindings.items()}
        values["ranks"] = float(program.replicas)
        depth = None if self.depth == _FILE else self.depth
        loading = read_loading(self.file, values, depth)
        hosted = ctx.get(HOSTED, program)
        if loading is None:
            ctx.set(HOSTED, program, hosted)
            ctx.set(INPUT_PIPELINE, program, None)
            return
        costs = ctx.get(KERNEL_COST, program)
        _, schedule = StreamSchedule().scheduled(hosted, costs, ctx.target)
        found = LoadedStep(loading, max(schedule.end_s, default=0.0) * US)
        waits = _waits(found)
        if waits:
            hosted = tuple(_behind(one, waits) for one in hosted)
        ctx.set(HOSTED, program, hosted)
        ctx.set(INPUT_PIPELINE, program, found)


def _waits(found: LoadedStep) -> list[tuple[str, float]]:
    """Return the waits of a step: their names, and how many seconds each."""
    loading = found.loading
    if not loading.overlapped:
        each = [(stage.name, stage.time_us / US) for stage in loading.stages]
        return [(name, seconds) for name, seconds in each if seconds > 0]
    slowest = loading.slowest(found.step_us)
    if found.exposed_us <= 0:
        return []
    on_gpu = [stage for stage in loading.of(GPU) if stage.time_us > 0]
    if slowest == next(loading.limits(found.step_us)):
        return [(stage.name, stage.time_us / US) for stage in on_gpu]
    return [(slowest.name, found.exposed_us / US)]


def _behind(
    hosted: HostedLaunches, waits: Sequence[tuple[str, float]]
) -> HostedLaunches:
    """Return the launches of a rank behind host tasks that wait for its batch."""
    graph = hosted.graph
    first = next((n for n, kind in enumerate(graph.kind) if kind in HOST_KINDS), None)
    if first is None:
        return hosted
    made, thread = graph.emptied(), graph.resource[first]
    for name, seconds in waits:
        op = made.add_op(ir.LaunchOp(DATA_LOADING, f"{DATA_LOADING}: {name}"))
        made.task(
            ir.TaskKind.HOST, thread, op=op, detail=DATA_LOADING, stated_s=seconds
        )
    _append(made, graph, {thread})
    made.complete = graph.complete
    stated_s = np.array([seconds for _, seconds in waits])
    return attrs.evolve(
        hosted, graph=made, host_s=np.concatenate([stated_s, hosted.host_s])
    )


def _append(made: ir.LaunchGraph, graph: ir.LaunchGraph, begun: set[int]) -> None:
    """Append the tasks of *graph*; what nothing holds back waits for the batch."""
    count = len(made)
    for task in range(len(graph)):
        after = tuple(other + count for other in graph.after[task])
        issue, resource = graph.issue[task], graph.resource[task]
        if resource not in begun and issue < 0 and not after:
            after = (count - 1,)
        begun.add(resource)
        made.task(
            graph.kind[task],
            resource,
            op=graph.op[task],
            kernel=graph.kernel[task],
            issue=issue + count if issue >= 0 else -1,
            after=after,
            detail=graph.detail[task],
            group=graph.group[task],
            stated_s=graph.stated_s[task],
        )
