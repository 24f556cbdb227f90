"""Waits of the host for the device, and launches without such waits."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from perfc.ir import Kernel, LaunchGraph, TaskKind
from perfc.passes import graphs


def waits_inside(graph: LaunchGraph) -> frozenset[int]:
    """Return the synchronisations of the host before the last one."""
    syncs = [t for t, kind in enumerate(graph.kind) if kind is TaskKind.SYNC]
    return frozenset(syncs[:-1])


def waits_for_inputs(graph: LaunchGraph) -> frozenset[int]:
    """Return the synchronisations that wait for copies to the device alone."""
    return frozenset(
        task
        for task in waits_inside(graph)
        if graph.after[task]
        and all(_is_to_device(graph, copy) for copy in graph.after[task])
    )


def _is_to_device(graph: LaunchGraph, task: int) -> bool:
    number = graph.kernel[task]
    return number >= 0 and _is_copy_to_device(graph.kernels[number])


def _is_copy_to_device(kernel: Kernel) -> bool:
    return kernel.op == "memcpy" and kernel.params.get("kind") == "h2d"


def without_waits(
    graph: LaunchGraph, waits: Collection[int], *, pinned: bool = False
) -> LaunchGraph:
    """Return a launch graph without some synchronisations; the same if there are none.

    Args:
        graph: The launches, op after op.
        waits: The synchronisations.
        pinned: Whether copies to the device are from pinned memory then.

    """
    if not waits and not pinned:
        return graph
    copy = graphs.LaunchCopy(graph)
    for kernel in graph.kernels:
        copy.result.kernels.append(
            attrs.evolve(kernel, params=kernel.params.updated(pinned=True))
            if pinned and _is_copy_to_device(kernel)
            else kernel
        )
    copy.result.ops += graph.ops
    for task, op in enumerate(graph.op):
        if task in waits:
            copy.skip(task)
        else:
            copy.add(task, op=op)
    return copy.result
