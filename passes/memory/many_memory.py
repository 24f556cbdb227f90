"""Device memory of an iteration at many sizes, as the pass `memory` finds it at one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import many_of
from perfc.ir import Graph, LaunchGraph
from perfc.passes.columns import integers
from perfc.passes.lowering import SCRATCHES
from perfc.passes.memory.caching_allocator import rounded
from perfc.passes.memory.memory import Storages
from perfc.passes.timing import detail_mask

Bytes: TypeAlias = NDArray[np.int64]


def scratch_kernels(launches: LaunchGraph) -> list[int]:
    """Return the kernels whose work says how much memory they need besides results."""
    tasks: list[int] = np.flatnonzero(detail_mask(launches, SCRATCHES)).tolist()
    numbers = {launches.kernel[task] for task in tasks}
    return sorted(numbers - {-1})


def many_peaks(
    graph: Graph, launches: LaunchGraph, numbers: Mapping[str, int], workspace: Bytes
) -> Bytes:
    """Return the most that is allocated at each size.

    Args:
        graph: The op graph.
        launches: What it launches at all sizes; works of kernels may be many numbers.
        numbers: Numbers of the symbols, which may be many.
        workspace: Bytes of BLAS's workspace at each size.

    Raises:
        SplitError: sizes do not agree on what is held.
        TypeError: many numbers are asked for what only one can be.

    """
    buffers = Storages(graph, launches, numbers).buffers(None)
    size = np.empty((len(buffers), len(workspace)), dtype=np.int64)
    for row, (_, _, nbytes, _, _) in zip(size, buffers, strict=True):
        several = many_of(nbytes)
        row[:] = nbytes if several is None else several.values
    size = rounded(size)
    first = integers([buffer[3] for buffer in buffers])
    last = integers([buffer[4] for buffer in buffers])
    grown, freed = np.zeros((2, len(list(graph)) + 2, len(workspace)), dtype=np.int64)
    np.add.at(grown, first + 1, size)
    np.add.at(freed, last + 1, size)
    during = np.cumsum(grown - freed, axis=0)[:-1]
    during += freed[:-1]
    peaks: Bytes = during.max(axis=0) + rounded(workspace)
    return peaks
