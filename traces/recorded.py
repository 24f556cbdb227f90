"""A trace as a launch graph that states what was measured."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import attrs

from perfc.ir import Diagnostic, LaunchGraph
from perfc.ir.support import brief
from perfc.traces.events import DeviceWork, Place, Trace


class Gap(enum.Enum):
    """What the host did between two calls; the value is the task's detail.

    `T1` to `T5` and `T0` as in a host profile. What is no overhead of a single op is
    set apart: between two ops where a label begins or ends (a phase, an optimizer's
    step), from one thread to another, at the end and the beginning of an iteration.
    """

    T1 = "T1"
    T2 = "T2"
    T3 = "T3"
    T5 = "T5"
    T0 = "T0"
    PHASE = "phase"
    HAND_OVER = "hand-over"
    HAND_BACK = "hand-back"
    END = "end"
    BEGIN = "begin"
    OFFSET = "offset"


@attrs.frozen
class StepMark:
    """An iteration, and the tasks that lie around its borders.

    Attributes:
        name: As `ProfilerStep#7`.
        number: Its number.
        start_us: When it began, as measured.
        end_us: When it ended on the host, as measured.
        first: The first host task at or after its start.
        last: The last host task before its end.

    """

    name: str
    number: int
    start_us: float
    end_us: float
    first: int
    last: int


@attrs.frozen(eq=False)
class Recorded:
    """A trace, and its launch graph, in which every task states its seconds.

    Attributes:
        trace: Where it comes from.
        graph: Its tasks in the order in which the host issued them.
        start_us: When each task began, as measured.
        end_us: When each ended, as measured.
        steps: The iterations that the profiler marked.
        stream_gap_us: Between two tasks of a busy stream, on average.
        graph_gap_us: The same of two that one call issued, that of a CUDA graph.
        launch_latency_us: From the end of a launch to the start of what it launched on
            an idle stream, on average.
        works: The device work that each device task is.
        places: Where launches, and what they issued, were called, by task; that of a
            stretch of the host's is its op's.
        diagnostics: What the trace left open, and how it was filled.

    """

    __repr__ = brief

    trace: Trace
    graph: LaunchGraph
    start_us: Sequence[float]
    end_us: Sequence[float]
    steps: tuple[StepMark, ...]
    stream_gap_us: float
    graph_gap_us: float
    launch_latency_us: float
    works: Mapping[int, DeviceWork]
    places: Mapping[int, Place]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def collectives(self) -> dict[int, str]:
        """Group and number of collectives, the same on every rank, by task."""
        named = self.works.items()
        return {task: work.identity for task, work in named if work.identity}

    @property
    def begin_us(self) -> float:
        """When the trace began, by the clock that its ranks share; 0 for one alone."""
        return self.trace.delay_us

    @property
    def measured_us(self) -> float:
        """Microseconds from the first event to the end of the last one."""
        return max(self.end_us, default=self.begin_us) - self.begin_us
