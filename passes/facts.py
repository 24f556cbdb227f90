"""The facts that passes hand to each other: the catalogue.

Facts about launches hang on the program, one item per rank class, because the
launch graph itself depends on the target and the runtime.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Estimate
from perfc.ir import AnnotationKey, Graph, LaunchGraph, Program, Value
from perfc.ir.dims import Dim
from perfc.ir.support import brief, paused_collector
from perfc.passes.columns import floats, integers

TYPED: AnnotationKey[bool] = AnnotationKey("ir.typed", Graph, per_scenario=False)
"""Every value of the op graph has a type."""

ELEMENTS: AnnotationKey[Mapping[Value, tuple[Dim, ...]]] = AnnotationKey(
    "ir.elements", Graph, per_scenario=False
)
"""Elements of the small integer tensors that do not depend on data."""

LAUNCHES: AnnotationKey[tuple[LaunchGraph, ...]] = AnnotationKey(
    "launch.device", Program
)
"""Per rank class: ops, host calls and device tasks in issue order; a task's op
index never decreases. Host segments are not in it yet."""

KERNEL_COST: AnnotationKey[tuple[Estimate, ...]] = AnnotationKey(
    "cost.kernels", Program
)
"""Per rank class: cost of each kernel signature of the launch graph."""


@attrs.frozen
class Sustained:
    """What the boards draw that run a step again and again.

    Attributes:
        work_joules: Of a step, above what idle boards draw; all ranks together. None
            where nobody has measured the joules of some arithmetic.
        idle_watts: What they draw without work, all together.
        clock_hz: Per rank class: mean SM clock while kernels run.
        slowdown: By how much the kernel that is held down most takes longer than its
            price; 1 where the cap holds none down.

    """

    work_joules: float | None
    idle_watts: float
    clock_hz: tuple[float, ...]
    slowdown: float

    def joules(self, time_s: float) -> float | None:
        """Return the joules of a step of so many seconds, all boards together."""
        if self.work_joules is None:
            return None
        return self.work_joules + self.idle_watts * time_s


SUSTAINED: AnnotationKey[Sustained | None] = AnnotationKey("power.sustained", Program)
"""Power and clock of a step that is repeated; None of targets that nobody has measured.
"""


@attrs.frozen(eq=False)
class HostedLaunches:
    """A launch graph with its host segments, and what they take.

    Attributes:
        graph: The launch graph; its kernels are those of `LAUNCHES`.
        host_s: Seconds of each host task; NaN for device tasks.
        sigma_shared: Relative uncertainty that all host tasks share.
        sigma_independent: Relative uncertainty of each host task on its own.
        profile: Whose host times they are.

    """

    __repr__ = brief

    graph: LaunchGraph
    host_s: NDArray[np.float64]
    sigma_shared: float
    sigma_independent: float
    profile: str = ""


DATA_LOADING = "data loading"
"""Detail of host tasks that wait for the batch of a step."""

HOSTED: AnnotationKey[tuple[HostedLaunches, ...]] = AnnotationKey(
    "launch.hosted", Program
)
"""Per rank class: the launch graph with T1 to T5 as host segments."""


@attrs.frozen(eq=False)
class Schedule:
    """When every task runs, all rank classes on one time axis.

    Tasks are numbered flat: class after class, in the order of the program, each
    in the order of its hosted launch graph.

    Attributes:
        offsets: Flat number of the first task of each class.
        duration_s: Seconds of each task.
        start_s: When each task starts.
        end_s: When each task ends.
        cause: Flat number of the task that decided the start, -1 for none.

    """

    __repr__ = brief

    offsets: tuple[int, ...]
    duration_s: Sequence[float]
    start_s: Sequence[float]
    end_s: Sequence[float]
    cause: Sequence[int]

    @functools.cached_property
    def durations_s(self) -> NDArray[np.float64]:
        """`duration_s` as an array."""
        return floats(self.duration_s)

    @functools.cached_property
    def starts_s(self) -> NDArray[np.float64]:
        """`start_s` as an array."""
        return floats(self.start_s)

    @functools.cached_property
    def ends_s(self) -> NDArray[np.float64]:
        """`end_s` as an array."""
        return floats(self.end_s)


SCHEDULE: AnnotationKey[Schedule] = AnnotationKey("time.schedule", Program)
"""Start and end of every task."""


class SegmentKind(enum.Enum):
    """What the critical path spends a segment on; the values are the report's."""

    KERNEL = "kernel"
    HOST = "host"
    LAUNCH = "launch"
    COPY = "copy"
    SYNC = "sync"
    COMM = "comm"
    IDLE = "idle"


class Segment(NamedTuple):
    """One stretch of the critical path.

    Attributes:
        kind: What it is spent on. Host tasks, calls included, are `host`;
            `launch` is the latency from a call's end to its device task;
            `idle` is any other wait (the gap between kernels of a stream).
        task: Flat number of the task; for `launch` and `idle` the one waiting.
        start_s: When it starts; segments follow one another without a gap.
        duration_s: How long it lasts; the sum over the path is the time.

    """

    kind: SegmentKind
    task: int
    start_s: float
    duration_s: float


SEGMENT_KINDS = tuple(SegmentKind)
"""Kinds by their numbers in a `SegmentTable`."""


class SegmentTable(NamedTuple):
    """The segments of a path, one array a column; see `Segment`.

    Attributes:
        kind: Number of the kind in `SEGMENT_KINDS`.
        task: Flat number of the task.
        start_s: When each starts.
        duration_s: How long each lasts.

    """

    kind: NDArray[np.int8]
    task: NDArray[np.int64]
    start_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]


@attrs.frozen(eq=False)
class Path:
    """The critical path of a schedule.

    Its parts are worked out when they are asked for: a search that asks only for
    the time does not wait for them.

    Attributes:
        time_s: From the first start to the last end.
        tasks: The tasks of the path, in order of time.
        find_segments: Works out `segment_table`.
        find_slack_s: Works out `slack_s`.

    """

    __repr__ = brief

    time_s: float
    tasks: Sequence[int]
    find_segments: Callable[[], SegmentTable] = attrs.field(repr=False)
    find_slack_s: Callable[[], Sequence[float]] = attrs.field(repr=False)

    @functools.cached_property
    def task_numbers(self) -> NDArray[np.int64]:
        """`tasks` as an array."""
        return integers(self.tasks)

    @functools.cached_property
    def segment_table(self) -> SegmentTable:
        """The path, in order of time; durations sum to `time_s`."""
        return self.find_segments()

    @functools.cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The rows of `segment_table`."""
        numbers: list[int] = self.segment_table.kind.tolist()
        kinds = [SEGMENT_KINDS[number] for number in numbers]
        columns = [column.tolist() for column in self.segment_table[1:]]
        with paused_collector():
            return tuple(map(Segment, kinds, *columns))

    @functools.cached_property
    def slack_s(self) -> Sequence[float]:
        """Seconds that each task could end later without changing the time.

        They are 0 on the path.
        """
        return self.find_slack_s()


CRITICAL_PATH: AnnotationKey[Path] = AnnotationKey("time.critical_path", Program)
"""The chain of segments that makes the time what it is."""


@attrs.frozen
class TimeFactor:
    """One of the errors of a time, independent of the others.

    Attributes:
        factor: Why: `kernel`, `session`, `board`, `architecture`, `host`, ...
        shared_with: What is off alike.
        sigma: Standard deviation of the logarithm of the time, to the late side.
        sigma_low: The same to the early side.

    """

    factor: str
    shared_with: str
    sigma: float
    sigma_low: float


@attrs.frozen
class Interval:
    """A 90 % interval of the time of one iteration, and what makes it wide.

    Attributes:
        low_s: 5th percentile.
        high_s: 95th percentile.
        device_share: Share of the variance due to device times, in [0, 1].
        factors: What adds up to it, in quadrature of logarithms.

    """

    low_s: float
    high_s: float
    device_share: float
    factors: tuple[TimeFactor, ...] = ()


INTERVAL: AnnotationKey[Interval] = AnnotationKey("time.interval", Program)
"""How far off the predicted time may be."""
