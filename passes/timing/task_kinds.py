"""What a launch graph says of its tasks, as arrays."""

from __future__ import annotations

import functools
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from perfc.ir import LaunchGraph, TaskKind
from perfc.passes.columns import integers

_NUMBER = {kind: number for number, kind in enumerate(TaskKind)}
_KINDS: WeakKeyDictionary[LaunchGraph, NDArray[np.uint8]] = WeakKeyDictionary()
_KERNELS: WeakKeyDictionary[LaunchGraph, NDArray[np.int64]] = WeakKeyDictionary()


def task_mask(graph: LaunchGraph, kinds: frozenset[TaskKind]) -> NDArray[np.bool_]:
    """Return which tasks of *graph* are of one of *kinds*."""
    return _wanted(kinds)[task_kinds(graph)]


@functools.cache
def _wanted(kinds: frozenset[TaskKind]) -> NDArray[np.bool_]:
    return np.array([kind in kinds for kind in TaskKind])


def kernel_numbers(graph: LaunchGraph) -> NDArray[np.int64]:
    """Return the number of the kernel of each task, -1 for none.

    Of a complete graph they are remembered.
    """
    found = _KERNELS.get(graph.structure) if graph.complete else None
    if found is None:
        found = integers(graph.kernel)
        if graph.complete:
            _KERNELS[graph.structure] = found
    return found


def detail_mask(graph: LaunchGraph, details: frozenset[str]) -> NDArray[np.bool_]:
    """Return which tasks of *graph* have one of *details*."""
    return np.frombuffer(bytes(map(details.__contains__, graph.detail)), dtype=np.bool_)


def task_kinds(graph: LaunchGraph) -> NDArray[np.uint8]:
    """Return where in `TaskKind` the kind of each task stands.

    Of a complete graph it is remembered.
    """
    found = _KINDS.get(graph.structure) if graph.complete else None
    if found is None:
        numbers = bytes(map(_NUMBER.__getitem__, graph.kind))
        found = np.frombuffer(numbers, dtype=np.uint8)
        if graph.complete:
            _KINDS[graph.structure] = found
    return found
