"""A step whose exchanges, lookups and updates are those of any plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels import Target
from perfc.costmodels.kernels import Floats
from perfc.ir import LaunchGraph
from perfc.passes import Timeline
from perfc.planning.step import roles
from perfc.planning.step.step_model import StepModel, reduce_timeline

Duration = Callable[[Floats], Floats]
"""Turns loads, [plans, ranks, groups, measures], into seconds, [plans, ranks or 1]."""


@attrs.frozen(eq=False)
class Reference:
    """A step of one rank under some plan, as the whole pipeline has scheduled it.

    Attributes:
        graph: What the rank launches.
        timeline: Who waits for whom.
        duration_s: Seconds of each task.
        loads: Of all ranks under that plan, [ranks, resources].
        rank: Which of them it is.

    """

    graph: LaunchGraph
    timeline: Timeline
    duration_s: Sequence[float]
    loads: Floats
    rank: int


@attrs.frozen
class Idle:
    """Seconds of kernels over next to nothing.

    Attributes:
        lookup_s: Of lookups.
        update_s: Of updates.

    """

    lookup_s: float
    update_s: float


@attrs.frozen(eq=False)
class StepTemplate:
    """A step with holes for what plans change.

    Attributes:
        model: The longest ways.
        durations: What each of its stops takes.

    """

    model: StepModel
    durations: tuple[Duration, ...]

    @classmethod
    def of(
        cls, reference: Reference, idle: Idle, spans: Mapping[str, int], target: Target
    ) -> StepTemplate:
        """Find the tasks that plans change in a scheduled step.

        Args:
            reference: The scheduled step.
            idle: What kernels over next to nothing take.
            spans: Sharding groups that loads have columns for, and how many ranks
                share rows.
            target: The machine.

        """
        # Collectives that wait for free SMs are solved in the order of their starts.
        stages = reference.timeline.stages
        solved = [task for tasks, group in stages for task in (*tasks, *group)]
        place = {task: number for number, task in enumerate(solved)}
        found = roles.tasks_of(reference.graph, reference.duration_s)
        tasks = sorted(found, key=lambda task: place[task.number])
        meetings = frozenset(task.number for task in tasks if task.is_collective)
        model = reduce_timeline(
            reference.timeline,
            reference.duration_s,
            [task.number for task in tasks],
            meetings,
        )
        ranks = len(reference.loads)
        loads = reference.loads.reshape(1, ranks, len(spans), len(roles.MEASURES))
        piece_s = roles.slice_seconds(reference.graph, reference.duration_s)
        ruler = _Ruler(loads, reference.rank, idle, piece_s, spans, target)
        return cls(model, tuple(ruler.duration(task) for task in tasks))

    def step_s(self, loads: Floats) -> Floats:
        """Return the time of steps, [plans].

        Args:
            loads: [plans, ranks, groups, measures].

        """
        return self.model.step_s([duration(loads) for duration in self.durations])


@attrs.frozen(eq=False)
class _Ruler:
    """Says what tasks take, from what they take in a reference.

    Attributes:
        loads: Of the reference, [1, ranks, groups, measures].
        rank: Whose tasks they are.
        idle: What kernels over next to nothing take.
        piece_s: What the host takes to view a piece of a tensor.
        spans: How many ranks share rows, for each sharding group.
        target: The machine.

    """

    loads: Floats
    rank: int
    idle: Idle
    piece_s: float
    spans: Mapping[str, int]
    target: Target

    def duration(self, task: roles.Task) -> Duration:
        """Return the duration of a task under any loads."""
        if task.role is None:
            return _constant(task.seconds)
        group = tuple(self.spans).index(task.group)
        if task.role in (roles.Role.LOOKUP, roles.Role.UPDATE):
            return self._kernels(task, group, task.role)
        if task.role is roles.Role.CAST:
            return self._linear(task, _local(group, roles.Role.ROWS))
        if task.role is roles.Role.SPREAD:
            return self._linear(
                task, _all(group, roles.Role.INDICES, self.spans[task.group])
            )
        if task.role is roles.Role.JOINED:
            return self._pieces(task, _all(group, roles.Role.JOINED, 1))
        return self._sent(task, self._size(task, group))

    def _size(self, task: roles.Task, group: int) -> Duration:
        span = self.spans[task.group]
        role, op = task.role or roles.Role.ROWS, task.kernel.op if task.kernel else ""
        if op == "memcpy":
            return _all(group, role, span)
        return _most(group, role, span) if op == "all_to_all" else _local(group, role)

    def _kernels(self, task: roles.Task, group: int, role: roles.Role) -> Duration:
        """Return the duration of kernels over tables: the longest has what varies."""
        column = roles.MEASURES.index(role.value)
        idle_s = self.idle.lookup_s if role is roles.Role.LOOKUP else self.idle.update_s
        known_s = float(self.loads[0, self.rank, group, column])
        # Parts are priced one by one; together they take what the reference says.
        share = 1.0
        if known_s > 0:
            share = max(0.0, task.seconds + task.rest_s - idle_s) / known_s
        fixed_s = idle_s - task.rest_s

        def seconds(loads: Floats) -> Floats:
            own_s = share * loads[:, :, group, column] + fixed_s
            found: Floats = np.maximum(own_s, 0.0)
            return found

        return seconds

    def _linear(self, task: roles.Task, size: Duration) -> Duration:
        """In proportion to a size."""
        known = size(self.loads)
        share = task.seconds / float(known[0, min(self.rank, known.shape[1] - 1)])
        return lambda loads: share * size(loads)

    def _pieces(self, task: roles.Task, count: Duration) -> Duration:
        """Return a duration that grows by so much for each piece."""
        known = float(count(self.loads)[0, 0])

        def seconds(loads: Floats) -> Floats:
            more = self.piece_s * (count(loads) - known)
            found: Floats = np.maximum(task.seconds + more, 0.0)
            return found

        return seconds

    def _sent(self, task: roles.Task, size: Duration) -> Duration:
        if task.kernel is None:
            return _constant(task.seconds)
        curve, known = roles.Curve.of(task.kernel, self.target), size(self.loads)
        whole = float(known[0, min(self.rank, known.shape[1] - 1)])
        return lambda loads: curve.seconds(size(loads) / whole)


def _constant(seconds: float) -> Duration:
    found = np.full((1, 1), seconds)
    return lambda _: found


def _local(group: int, role: roles.Role) -> Duration:
    """What each rank has itself."""
    column = roles.MEASURES.index(role.value)
    return lambda loads: loads[:, :, group, column]


def _all(group: int, role: roles.Role, span: int) -> Duration:
    """What all places have together."""
    own = _local(group, role)

    def size(loads: Floats) -> Floats:
        found: Floats = own(loads).sum(axis=1, keepdims=True) / span
        return found

    return size


def _most(group: int, role: roles.Role, span: int) -> Duration:
    """What the busiest rank of an all-to-all sends or gets.

    Each sends its samples' share to all places, and gets its own tables' share of the
    samples of all ranks.
    """
    own, every = _local(group, role), _all(group, role, span)

    def size(loads: Floats) -> Floats:
        places = loads.shape[1] // span
        largest = own(loads).max(axis=1, keepdims=True) * places
        found: Floats = np.maximum(largest, every(loads))
        return found

    return size
