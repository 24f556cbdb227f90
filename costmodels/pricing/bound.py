"""The time that no kernel can beat: that of its work, or what a model says of it.

A plugin's model that brings a bound bounds what it prices. Of perfc's own the one that
`BOUND_BY` names says it of a kernel, whichever of them prices it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import attrs
import numpy as np

from perfc.costmodels.kernels import (
    ARRAYS,
    FLOATS,
    BringsBound,
    BringsOneBound,
    CostModel,
    Estimate,
    Floats,
    Indices,
    KernelTable,
    OneSignature,
    memory_levels,
    work_bound_s,
)
from perfc.costmodels.machine import NEAR_ROWS, Target
from perfc.costmodels.pricing.listed import BOUND_BY, Owner, listed
from perfc.costmodels.pricing.models import cost_models
from perfc.ir import PerfcError
from perfc.ir.support import is_built_in, plugin_at_work


def at_least_bound(seconds: Floats, kernels: KernelTable, target: Target) -> Floats:
    """Raise *seconds* to the lower bound where they are below it."""
    # All work, nothing saved: few bounds are above, and what is saved takes longer to
    # find, as unique rows do, which matter only to kernels that are faster than that.
    doubtful = seconds < work_bound_s(kernels.signatures, target, ARRAYS)
    for _, rows in _owned(kernels, exceeding=True):
        doubtful[rows] = True
    if not doubtful.any():
        return seconds
    rows = np.flatnonzero(doubtful)
    raised = seconds.copy()
    raised[rows] = np.maximum(seconds[rows], lower_bound(kernels.take(rows), target))
    return raised


def brings_bound(model: CostModel) -> bool:
    """Whether a plugin's model says how fast its kernels can be."""
    return not is_built_in(model) and hasattr(model, "lower_bound")


def at_least_own_bound(
    estimate: Estimate, kernels: KernelTable, target: Target, model: CostModel
) -> Estimate:
    """Raise what a plugin's model says to the bound that it brings."""
    least_s = _own_bound(model, kernels, target)
    return attrs.evolve(estimate, seconds=np.maximum(estimate.seconds, least_s))


def lower_bound(
    kernels: KernelTable, target: Target, priced_by: Sequence[str] = ()
) -> Floats:
    """Return a lower bound of each kernel's duration, in seconds, shape (rows,).

    The larger of flops over the peak of the math mode and bytes over the rate of the
    fastest memory that holds them all, or what the model says that knows better.

    Args:
        kernels: Of which kernels.
        target: What they run on.
        priced_by: The model of each (`Estimate.model`), if plugins' are to be asked.

    """
    found = work_bound_s(kernels.signatures, target, ARRAYS)
    for owner, rows in _owned(kernels):
        said_by = cast("BringsBound", listed(owner.model).model)
        found[rows] = said_by.lower_bound(_part(kernels, rows), target)
    names = np.array([name.partition(NEAR_ROWS)[0] for name in priced_by], np.str_)
    for model in cost_models() if len(names) else ():
        if brings_bound(model) and len(rows := np.flatnonzero(names == model.name)):
            found[rows] = _own_bound(model, _part(kernels, rows), target)
    return found


def _owned(
    kernels: KernelTable, *, exceeding: bool = False
) -> Iterator[tuple[Owner, Indices]]:
    """Yield the kernels whose bound a model of perfc's own says.

    Args:
        kernels: Of which kernels.
        exceeding: Only those whose bound may be above that of all their work.

    """
    kinds, at = kernels.kinds
    for op in sorted({op for op, _, _ in kinds} & BOUND_BY.keys()):
        if exceeding and not BOUND_BY[op].may_exceed:
            continue
        numbers = [number for number, kind in enumerate(kinds) if kind[0] == op]
        yield BOUND_BY[op], np.flatnonzero(np.isin(at, numbers))


def _part(kernels: KernelTable, rows: Indices) -> KernelTable:
    """Return some rows; the table itself, if they are all of it."""
    return kernels if len(rows) == len(kernels) else kernels.take(rows)


def _own_bound(model: CostModel, kernels: KernelTable, target: Target) -> Floats:
    """Return the lower bounds that a plugin's model says, in seconds."""
    with plugin_at_work(f"cost model {model.name!r}", model):
        found = np.asarray(cast("BringsBound", model).lower_bound(kernels, target))
    if found.shape == (len(kernels),) and found.dtype.kind in "fiu":
        seconds: Floats = found.astype(np.float64)
        if (np.isfinite(seconds) & (seconds >= 0)).all():
            return seconds
    shown = " ".join(np.array2string(found, threshold=3, precision=3).split())
    message = (
        f"cost model {model.name!r} answers lower_bound() with {shown} of shape "
        f"{found.shape}, expected seconds >= 0 of shape ({len(kernels)},)"
    )
    raise PerfcError(message)


def at_least_bound_of_one(seconds: float, one: OneSignature, target: Target) -> float:
    """Raise *seconds* of one kernel to its lower bound; as `at_least_bound`."""
    moved, device = one.bytes, target.device
    rate = device.memory.bytes_per_s
    for capacity_bytes, bytes_per_s in target.once(memory_levels):
        if moved <= capacity_bytes:
            rate = bytes_per_s
            break
    # As for a table, what is sooner found comes first.
    computed_s = one.flops / device.flops_per_s.get(one.math, 1.0)
    if moved / rate <= seconds >= computed_s:
        owner = BOUND_BY.get(one.op)
        if owner is None or not owner.may_exceed:
            return seconds
    return max(seconds, lower_bound_of_one(one, target))


def lower_bound_of_one(one: OneSignature, target: Target) -> float:
    """Return the lower bound of one kernel, in seconds."""
    owner = BOUND_BY.get(one.op)
    if owner is None:
        return work_bound_s(one, target, FLOATS)
    model = cast("BringsOneBound", listed(owner.model).model)
    return model.lower_bound_of_one(one, target)
