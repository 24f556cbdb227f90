"""Intervals of rows of the very sessions and boards whose rows set intervals.

Such rows are not off by what sessions and boards differ by: of the GPU's own fitted
sessions by neither, of software that set intervals of other GPUs by no session.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import Estimate, Flags, KernelTable, Texts, one_of
from perfc.costmodels.machine import Target
from perfc.costmodels.pricing import intervals


def as_fitted(
    estimate: Estimate,
    kernels: KernelTable,
    target: Target,
    sources: Texts | None = None,
) -> Estimate:
    """Leave out what other sessions and boards are off, of rows of fitted ones.

    Args:
        estimate: Of the rows.
        kernels: What they measured.
        target: The GPU.
        sources: Who measured each, shape (rows,); None: those whose rows set the
            intervals of this GPU.

    """
    if not (target.device.runs_cuda and len(kernels)):
        return estimate
    known = target.once(intervals.known_intervals)
    sizes = intervals.interval_sizes(estimate.seconds, target)
    shared, own = estimate.sigma_shared.copy(), estimate.sigma_independent.copy()
    of_target = estimate.sigma_target.copy()
    for op, stored, group in intervals.groups_of(kernels, target):
        found = intervals.interval_named(known, op, stored, group.suffixes)
        if found is None or found.is_least:
            continue
        names = intervals.interval_names(op, stored, group.suffixes)
        software, board = _known_rows(names, target, sources, group.rows)
        new = intervals.elsewhere_of(op)._replace(session=0.0, own=0.0)
        for at, elsewhere in ((software, new), (board, intervals.NOWHERE)):
            widths = np.broadcast_to(group.widths, len(kernels))[at]
            ours = intervals.stated_rows(found, sizes[at], widths, elsewhere)
            end = np.broadcast_to(group.spreads, len(kernels))[at] * (1 / intervals.Z90)
            shared[at], own[at] = ours[0], np.hypot(ours[1], end)
            of_target[: intervals.OF_ROWS, at] = ours[2:]
    return attrs.evolve(
        estimate, sigma_shared=shared, sigma_independent=own, sigma_target=of_target
    )


def _known_rows(
    names: Sequence[str], target: Target, sources: Texts | None, rows: Flags
) -> tuple[Flags, Flags]:
    """Return which rows are of software that set an interval, and of boards that did.

    Args:
        names: Of the interval of these rows.
        target: The GPU.
        sources: Who measured each row.
        rows: Which rows to look at.

    """
    by_gpu: Mapping[str, Mapping[str, list[str]]] = fitted("interval_rows")["rows"]
    here = _sources(by_gpu.get(target.device.name, {}), names)
    if sources is None:
        return np.zeros_like(rows), rows & bool(here)
    anywhere = itertools.chain(*(_sources(gpu, names) for gpu in by_gpu.values()))
    board = rows & one_of(sources, here)
    return rows & one_of(sources, {*anywhere}) & ~board, board


def _sources(of_gpu: Mapping[str, list[str]], names: Sequence[str]) -> list[str]:
    for name in names:
        if name in of_gpu:
            return of_gpu[name]
    return []
