"""What edits are about: names of nodes, modules and kernels, and their tasks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

import attrs

from perfc.ir import LaunchGraph, Program, UsageError
from perfc.ir.launch import BUSY_KINDS
from perfc.passes.lowering import fused_nodes
from perfc.tools.given import closest
from perfc.tools.reports import lone_id, node_id

Unit: TypeAlias = tuple[int, ...]
"""Tasks that an edit times together: those of one node, or one kernel."""

TaskKey: TypeAlias = tuple[int, str, int]
"""A task, however else the model changes: rank class, node, number among its tasks."""


@attrs.frozen(eq=False)
class Places:
    """Names of the tasks of a schedule.

    Attributes:
        graphs: Launch graph of each rank class, with what the host does.
        offsets: Flat number of the first task of each class.
        modules: Module of each node, by rank class.

    """

    graphs: tuple[LaunchGraph, ...]
    offsets: tuple[int, ...]
    modules: tuple[Mapping[str, str], ...]
    _known: dict[str, tuple[Unit, ...]] = attrs.field(
        factory=dict[str, "tuple[Unit, ...]"], init=False, repr=False
    )

    @classmethod
    def of(
        cls,
        program: Program,
        graphs: Sequence[LaunchGraph],
        offsets: tuple[int, ...],
    ) -> Places:
        """Return the names of launch graphs that a program became."""
        modules = tuple(
            {}
            if rank.ops is None
            else {node.name: node.location.module for node in rank.ops}
            for rank in program.classes
        )
        return cls(tuple(graphs), offsets, modules)

    def units(self, where: str) -> tuple[Unit, ...]:
        """Return the tasks that a name stands for, as durations are set.

        A name is the id of a node, else that of a kernel, else a pattern of modules;
        none of nodes that launch nothing and cost the host nothing.
        """
        found = self._known.get(where)
        if found is None:
            found = self._known.setdefault(where, self._units(where))
        return found

    def launching(self, where: str) -> list[tuple[int, str]]:
        """Return rank class and id of the nodes of a name that launch something."""
        found = [key for key, own in self.by_node.items() if own and key[1] == where]
        found = found or [
            key
            for key, own in self.by_node.items()
            if own and self._lies_in(key, where)
        ]
        if not found:
            self.units(where)
            msg = f"where={where!r}: it launches nothing that could be replaced"
            raise UsageError(msg)
        return found

    @functools.cached_property
    def by_node(self) -> Mapping[tuple[int, str], Unit]:
        """Timed tasks of each node: those on the device, else those of the host."""
        found: dict[tuple[int, str], Unit] = {}
        for rank, (graph, offset) in enumerate(
            zip(self.graphs, self.offsets, strict=True)
        ):
            by_op: list[list[int]] = [[] for _ in graph.ops]
            for task, op in enumerate(graph.op):
                if op >= 0:
                    by_op[op].append(task)
                else:
                    found[rank, lone_id(graph, task)] = (task + offset,)
            for op, tasks in enumerate(by_op):
                busy = [t for t in tasks if graph.kind[t] in BUSY_KINDS]
                key = (rank, node_id(graph, op))
                own = tuple([task + offset for task in busy or tasks])
                found[key] = (*found.get(key, ()), *own)
        return found

    @functools.cached_property
    def keys(self) -> Mapping[int, TaskKey]:
        """Name of each timed task."""
        return {
            task: (*node, number)
            for node, tasks in self.by_node.items()
            for number, task in enumerate(tasks)
        }

    def task(self, key: TaskKey) -> int | None:
        """Return the task of a name; None if there is none any more."""
        rank, node, number = key
        tasks = self.by_node.get((rank, node), ())
        return tasks[number] if number < len(tasks) else None

    def _units(self, where: str) -> tuple[Unit, ...]:
        named = [unit for (_, node), unit in self.by_node.items() if node == where]
        named = named or list(self._of_kernel(where))
        named = named or [
            unit for key, unit in self.by_node.items() if self._lies_in(key, where)
        ]
        if not named:
            raise UsageError(self._unknown(where))
        return tuple([unit for unit in named if unit])

    def _of_kernel(self, name: str) -> Iterator[Unit]:
        for graph, offset in zip(self.graphs, self.offsets, strict=True):
            numbers = {n for n, k in enumerate(graph.kernels) if k.op == name}
            for task, number in enumerate(graph.kernel, offset):
                if number in numbers:
                    yield (task,)

    def _lies_in(self, key: tuple[int, str], pattern: str) -> bool:
        rank, node = key
        modules = [self.modules[rank].get(node, "")]
        op = self._fused.get(key)
        if op:
            modules = [self.modules[rank].get(one, "") for one in op]
        return fnmatchcase(node, pattern) or any(
            module
            and (fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*"))
            for module in modules
        )

    @functools.cached_property
    def _fused(self) -> Mapping[tuple[int, str], Sequence[str]]:
        """Nodes of each op that stands for several."""
        return {
            (rank, node_id(graph, number)): fused_nodes(op)
            for rank, graph in enumerate(self.graphs)
            for number, op in enumerate(graph.ops)
            if fused_nodes(op)
        }

    def _unknown(self, where: str) -> str:
        nodes = {node for _, node in self.by_node}
        modules = {m for of_rank in self.modules for m in of_rank.values() if m}
        kernels = {k.op for graph in self.graphs for k in graph.kernels}
        known = sorted(nodes | modules | kernels)
        hint = closest(where, known) or f"; kernels: {', '.join(sorted(kernels))}"
        return f"where={where!r}: no node, module or kernel has this name{hint}"
