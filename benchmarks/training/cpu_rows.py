"""What rows of one CPU say of others: fitted from many tables.

`fit_cpu.py` writes it to `costmodels/fitted/cpu_rows.npz`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from perfc.costmodels import Target, cost_models
from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import Family, KernelFit, NearRows, Place, fits_of
from perfc.fitting.near_rows import fit_near_rows
from perfc.fitting.observations import Observations
from perfc.fitting.shipped_rows import logs_of
from perfc.ir import Kernel

_MOST_LOG = 1.5
"""Logarithms beyond that are of rows that something disturbed."""


@attrs.frozen(eq=False)
class FamilyLogs:
    """Rows of one family in one table.

    Attributes:
        kernels: What ran.
        logs: ln(measured / modelled), shape (rows,).
        noise: As `fit_near_rows` takes it, shape (rows,).

    """

    kernels: Sequence[Kernel]
    logs: Floats
    noise: Floats


def family_logs(
    seen: Observations, target: Target, fits: Sequence[KernelFit]
) -> dict[Family, FamilyLogs]:
    """Return the errors of a table's fitted rows by terms alone, by whole family.

    Args:
        seen: What was measured.
        target: The machine, without fits.
        fits: What was fitted of it.

    """
    alone = tuple(attrs.evolve(fit, near=None, shipped=0.0) for fit in fits)
    calibrated = attrs.evolve(target, fits=fits_of(alone))
    part = seen.part(fitted=True)
    logs, noise = logs_of(part, calibrated, cost_models())
    rows: dict[Family, list[int]] = defaultdict(list)
    for row, family in enumerate(part.families):
        rows[family.whole].append(row)
    kernels = part.kernels.kernels
    return {
        family: FamilyLogs([kernels[row] for row in at], logs[at], noise[at])
        for family, at in rows.items()
    }


def fit_shipped_rows(tables: Iterable[FamilyLogs]) -> NearRows | None:
    """Return the rows fitted to one family in all tables; None if they tell nothing.

    Kernels that lie at the same place are one row, their median: one that is left out
    to choose how far rows tell then has no twin.
    """
    at: dict[tuple[object, ...], list[tuple[Kernel, float, float]]] = defaultdict(list)
    for table in tables:
        place = Place.of(table.kernels)
        where = zip(place.sizes.tolist(), place.words.tolist(), strict=True)
        rows = zip(table.kernels, table.logs, table.noise, strict=True)
        for (sizes, words), (kernel, log, noise) in zip(where, rows, strict=True):
            key = (*sizes, *words)
            at[key].append((kernel, float(log), float(noise)))
    kernels = [alike[0][0] for alike in at.values()]
    logs = np.array([np.median([log for _, log, _ in alike]) for alike in at.values()])
    noise = np.array(
        [
            np.mean([noise for _, _, noise in alike]) / np.sqrt(len(alike))
            for alike in at.values()
        ]
    )
    return fit_near_rows(kernels, logs.clip(-_MOST_LOG, _MOST_LOG), noise, len(kernels))
