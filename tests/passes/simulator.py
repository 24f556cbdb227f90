"""A discrete-event simulator of hosts and devices: the oracle of the scheduler.

It moves a clock from event to event and starts whatever may start. It knows
nothing of predecessors' latest ends, of table order across resources, or of paths.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Sequence

import attrs

from perfc.ir import LaunchGraph
from perfc.ir.launch import BUSY_KINDS

TaskId = tuple[int, int]
"""Rank class, and index of the task in its launch graph."""
Place = tuple[int, int]
"""Rank class, and index of a thread or stream."""


class DeadlockError(Exception):
    """Tasks are left, and nothing can happen any more."""


class Happening(enum.Enum):
    """What an event in the queue is."""

    STARTED = "the machines are switched on"
    SUBMITTED = "a device task has reached its stream"
    FINISHED = "a task has ended"
    DRAINED = "the gap after a busy task is over"


@attrs.define
class Lane:
    """A thread or stream at work.

    Attributes:
        queue: Tasks it has not begun, in table order.
        occupied: Whether a task runs on it or the gap after one is not over.
        last: The task that it began last, -1 for none.

    """

    queue: deque[TaskId] = attrs.field(factory=deque[TaskId])
    occupied: bool = False
    last: int = -1


@attrs.define
class Simulator:
    """Threads, streams, events and collectives of several ranks, on one clock.

    Attributes:
        graphs: What each rank class does.
        seconds: How long each task takes.
        latency_s: From the end of a call until its device task is on the stream.
        gap_s: How long a stream rests between two busy tasks.
        graph_gap_s: The same between two that one call has issued.
        synchronous: Whether a call returns when what it issued has ended.
        start_s: When each task started.
        end_s: When each task ended.

    """

    graphs: Sequence[LaunchGraph]
    seconds: Sequence[Sequence[float]]
    latency_s: float
    gap_s: float
    graph_gap_s: float
    synchronous: bool = False
    start_s: dict[TaskId, float] = attrs.field(factory=dict[TaskId, float])
    end_s: dict[TaskId, float] = attrs.field(factory=dict[TaskId, float])
    _clock_s: float = 0.0
    _events: list[tuple[float, int, Happening, TaskId]] = attrs.field(
        factory=list["tuple[float, int, Happening, TaskId]"]
    )
    _lanes: dict[Place, Lane] = attrs.field(factory=dict[Place, Lane])
    _submitted: set[TaskId] = attrs.field(factory=set[TaskId])
    _waiting_at: dict[str, set[TaskId]] = attrs.field(factory=dict[str, set[TaskId]])
    _sizes: dict[str, int] = attrs.field(factory=dict[str, int])
    _posted: int = 0

    def run(self) -> float:
        """Simulate, and return when the last task ends."""
        for rank, graph in enumerate(self.graphs):
            for place in range(len(graph.resources)):
                self._lanes[rank, place] = Lane()
            for index in range(len(graph)):
                self._lanes[rank, graph.resource[index]].queue.append((rank, index))
                group = graph.group[index]
                self._sizes[group] = self._sizes.get(group, 0) + 1
        self._post(0.0, Happening.STARTED, (0, 0))
        while self._events:
            self._clock_s, _, happening, task = heapq.heappop(self._events)
            self._handle(happening, task)
            while sum(map(self._try_begin, self._lanes.values())):
                pass
        if any(lane.queue for lane in self._lanes.values()):
            raise DeadlockError
        return self._clock_s if self.end_s else 0.0

    def _post(self, delay_s: float, happening: Happening, task: TaskId) -> None:
        self._posted += 1  # keeps events of one instant in order
        event = (self._clock_s + delay_s, self._posted, happening, task)
        heapq.heappush(self._events, event)

    def _handle(self, happening: Happening, task: TaskId) -> None:
        rank, index = task
        graph = self.graphs[rank]
        lane = self._lanes.get((rank, graph.resource[index])) if len(graph) else None
        if happening is Happening.SUBMITTED:
            self._submitted.add(task)
        elif happening is Happening.DRAINED and lane is not None:
            lane.occupied = False
        elif happening is Happening.FINISHED and lane is not None:
            self.end_s[task] = self._clock_s
            rest_s = self._rest_s(graph, index, lane)
            if rest_s is None:
                lane.occupied = False
            else:
                self._post(rest_s, Happening.DRAINED, task)
            for other in range(len(graph)):
                if graph.issue[other] == index:
                    self._post(self.latency_s, Happening.SUBMITTED, (rank, other))

    def _rest_s(self, graph: LaunchGraph, index: int, lane: Lane) -> float | None:
        """How long the lane rests after a task, None for not at all."""
        if not lane.queue or graph.kind[index] not in BUSY_KINDS:
            return None
        following = lane.queue[0][1]
        if graph.kind[following] not in BUSY_KINDS:
            return None
        of_one_call = graph.issue[index] == graph.issue[following] >= 0
        return self.graph_gap_s if of_one_call else self.gap_s

    def _try_begin(self, lane: Lane) -> bool:
        """Begin the lane's next task, or let it arrive at its collective."""
        if lane.occupied or not lane.queue:
            return False
        task = rank, index = lane.queue[0]
        graph = self.graphs[rank]
        if graph.issue[index] >= 0 and task not in self._submitted:
            return False
        if any((rank, other) not in self.end_s for other in graph.after[index]):
            return False
        if self.synchronous and not self._has_returned(rank, lane.last):
            return False
        lane.queue.popleft()
        lane.occupied = True
        lane.last = index
        group = graph.group[index]
        if not group:
            self._begin(task)
            return True
        arrived = self._waiting_at.setdefault(group, set())
        arrived.add(task)
        if len(arrived) == self._sizes[group]:
            for member in sorted(arrived):
                self._begin(member)
        return True

    def _has_returned(self, rank: int, call: int) -> bool:
        """Whether what a call issued, if it is one, has ended."""
        issue = self.graphs[rank].issue
        issued = [task for task, by in enumerate(issue) if by == call >= 0]
        return all((rank, task) in self.end_s for task in issued)

    def _begin(self, task: TaskId) -> None:
        rank, index = task
        self.start_s[task] = self._clock_s
        self._post(self.seconds[rank][index], Happening.FINISHED, task)
