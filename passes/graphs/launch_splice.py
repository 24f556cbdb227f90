"""Copying a launch graph with other ops in place of some that follow one another."""

from __future__ import annotations

from bisect import bisect_left

import attrs

from perfc.ir import LaunchGraph
from perfc.ir.launch import Splice
from perfc.passes.graphs.launch_copy import LaunchCopy


def tasks_of(graph: LaunchGraph, ops: range) -> range:
    """Return the tasks of ops of a graph whose tasks are in the order of its ops."""
    column = graph.op
    return range(bisect_left(column, ops.start), bisect_left(column, ops.stop))


def in_order_of_ops(graph: LaunchGraph) -> LaunchGraph:
    """Return a graph whose tasks are in the order of its ops: mostly the same."""
    if graph.op == sorted(graph.op):
        return graph
    copy = LaunchCopy(graph)
    copy.result.ops += graph.ops
    copy.result.kernels += graph.kernels
    for task in sorted(range(len(graph)), key=graph.op.__getitem__):
        copy.add(task, op=graph.op[task])
    return copy.result


@attrs.define(eq=False)
class LaunchSplice:
    """A launch graph that is made of another by putting ops in place of some.

    Columns are copied whole. What is added to `result` stands in place of those ops.

    Attributes:
        source: The other graph, with its tasks in the order of its ops.
        ops: Its ops that are replaced.
        result: The new graph; resources keep their numbers.
        moved: New number of a replaced task, for those that wait for it.

    """

    source: LaunchGraph
    ops: range
    result: LaunchGraph = attrs.field(init=False)
    moved: dict[int, int] = attrs.field(factory=dict[int, int], init=False)
    tasks: range = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Begin with what comes before the ops."""
        self.tasks = tasks_of(self.source, self.ops)
        self.result = self.source.head(self.ops.start, self.tasks.start)

    def add(self, task: int) -> int:
        """Copy one of the tasks, to the op that was added last; return its number."""
        source = self.source
        self.moved[task] = self.result.task(
            source.kind[task],
            source.resource[task],
            op=len(self.result.ops) - 1,
            kernel=source.kernel[task],
            issue=self.now(source.issue[task]),
            after=tuple([self.now(other) for other in source.after[task]]),
            detail=source.detail[task],
            group=source.group[task],
            stated_s=source.stated_s[task],
        )
        return self.moved[task]

    def now(self, task: int) -> int:
        """Return the number of a task that comes before, or was replaced."""
        return task if task < self.tasks.start else self.moved[task]

    def finished(self) -> LaunchGraph:
        """Return the graph, with what comes after the ops."""
        source, made, stop = self.source, self.result, self.tasks.stop
        start, end = self.tasks.start, len(made.ops)
        shift, later = len(made) - stop, end - self.ops.stop
        moved = self.moved

        def now(task: int) -> int:
            if task < start:
                return task
            return task + shift if task >= stop else moved[task]

        made.ops += source.ops[self.ops.stop :]
        made.kind += source.kind[stop:]
        made.resource += source.resource[stop:]
        made.op += [op + later for op in source.op[stop:]]
        made.kernel += source.kernel[stop:]
        made.issue += [
            task + shift if task >= stop else now(task) for task in source.issue[stop:]
        ]
        made.after += [
            tuple([now(task) for task in after]) if after else after
            for after in source.after[stop:]
        ]
        made.detail += source.detail[stop:]
        made.group += source.group[stop:]
        made.stated_s += source.stated_s[stop:]
        kernels = made.drop_kernels()
        made.splice = Splice(
            source.structure, self.ops, self.tasks, end, moved, kernels
        )
        made.complete = True
        return made
