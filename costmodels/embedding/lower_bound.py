"""What no lookup of embedding tables can beat, nor any update of their rows."""

from __future__ import annotations

import numpy as np

from perfc.costmodels import locality
from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    Floats,
    KernelTable,
    Maths,
    Number,
    OneSignature,
    Signatures,
    work_bound_s,
)
from perfc.costmodels.machine import Target

_MIN_INDEX_BYTES = 4


def bags_bound_s(kernels: KernelTable, target: Target) -> Floats:
    """Return the bound of the bytes that must move, and of flops, shape (rows,)."""
    moved = kernels.bytes.copy()
    usable = np.flatnonzero(kernels.once(locality.listed_tables).usable)
    part = kernels if len(usable) == len(kernels) else kernels.take(usable)
    if len(part):
        moved[usable] = _least_bytes(part.signatures, locality.lookups_of(part), ARRAYS)
    return work_bound_s(kernels.signatures, target, ARRAYS, moved=moved)


def bag_bound_s(one: OneSignature, target: Target) -> float:
    """Return the bound of one kernel."""
    moved = one.bytes
    if locality.has_tables(one.kernel):
        moved = _least_bytes(one, one.once(locality.lookups_of_one), FLOATS)
    return work_bound_s(one, target, FLOATS, moved=moved)


def _least_bytes(
    kernels: Signatures[Number],
    lookups: locality.Lookups[locality.Each, Number],
    maths: Maths[Number],
) -> Number:
    """Bytes of the work, but a row looked up twice need not be read twice."""
    distinct = lookups.distinct()
    forward = kernels.text("phase") == "forward"
    # A gradient writes the rows that it reads, and its own rows are read, too.
    times = lookups.spread(maths.where(forward, 1.0, 2.0))
    needed = times * distinct * lookups.row_bytes + lookups.count * _MIN_INDEX_BYTES
    written = maths.where(forward, kernels.bytes_written, 0.0)
    return maths.least(kernels.bytes, lookups.per_kernel(needed) + written)
