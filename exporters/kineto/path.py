"""The critical path of a trace: arrows from slice to slice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from perfc.exporters.kineto.events import arrow_end, arrow_start, arrows, microseconds
from perfc.exporters.kineto.rank import Integers, RankTrace
from perfc.ir import TaskKind
from perfc.ir.launch import HOST_KINDS
from perfc.passes import task_mask
from perfc.tools import Results

_PATH = "critical_path"
_WITHOUT_SLICE = frozenset({TaskKind.HOST, TaskKind.RECORD, TaskKind.WAIT})


def path_arrows(
    ranks: Sequence[RankTrace], results: Results, alone: RankTrace | None = None
) -> list[str]:
    """Return an arrow between each two slices that follow one another on the path.

    A task on the host stands for its op, so that the path runs from op to op; time
    between ops has no slice, and so no arrow. Of one rank *alone*, there are the arrows
    that do not leave it.
    """
    slices = np.concatenate([_slices(rank) for rank in ranks])[
        results.path.task_numbers
    ]
    slices = slices[slices >= 0]
    slices = slices[np.diff(slices, prepend=-1) != 0]
    before, after = slices[:-1], slices[1:]
    if alone is not None:
        own = np.arange(alone.offset, alone.offset + len(alone.graph))
        inside = np.isin(before, own) & np.isin(after, own)
        before, after = before[inside], after[inside]
    start_ns = np.concatenate([rank.start_ns for rank in ranks])
    end_ns = np.concatenate([_ends_ns(rank) for rank in ranks])
    # A slice that has waited began before what it waited for.
    waited = start_ns[after] < start_ns[before]
    reached_ns = np.where(waited, end_ns[before], start_ns[after])
    lanes = [lane for rank in ranks for lane in rank.lanes]
    first = accumulate([len(rank.lanes) for rank in ranks], initial=0)
    number = np.concatenate([rank.resource + next(first) for rank in ranks])
    heads = [arrow_start(_PATH, lane) for lane in lanes]
    tails = [arrow_end(_PATH, lane) for lane in lanes]
    numbers = [*map(str, range(1, len(before) + 1))]
    left = [*map(heads.__getitem__, number[before].tolist())]
    reached = [*map(tails.__getitem__, number[after].tolist())]
    pieces = arrows(left, microseconds(start_ns[before]), numbers)
    pieces += arrows(reached, microseconds(reached_ns), numbers)
    return pieces


def _slices(rank: RankTrace) -> Integers:
    """Return the slice that shows each task, by its first task; -1 for none."""
    tasks = np.arange(len(rank.graph))
    own = np.where(task_mask(rank.graph, _WITHOUT_SLICE), -1, tasks)
    of_op = np.where(rank.between, -1, rank.op_first[rank.op])
    in_op = task_mask(rank.graph, HOST_KINDS) & (rank.op_first[rank.op] >= 0)
    found = np.where(in_op, of_op, own)
    return np.where(found < 0, -1, found + rank.offset)


def _ends_ns(rank: RankTrace) -> Integers:
    end_ns = rank.end_ns.copy()
    end_ns[rank.op_first[rank.op_slices.op]] = rank.op_slices.end_ns
    return end_ns
