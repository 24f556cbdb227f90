"""The price of one kernel, without tables: what an editor of graphs asks for.

A model of perfc's own may say what one kernel costs in plain floats: its method
`estimate_one(kernel, target)` returns a `Priced`, the number that `estimate` has, some
tens of times sooner, or None; `claims_one(kernel, target)` says whether it claims it.
Whatever has no such way, or asks for a table (a profile's corrections), is priced in a
table of one row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perfc.costmodels.bound import lower_bound
from perfc.costmodels.intervals import interval_of
from perfc.costmodels.protocol import (
    CostModel,
    Estimate,
    KernelTable,
    Priced,
    number_of,
)
from perfc.costmodels.target import Target
from perfc.ir import Kernel, is_built_in


def price_one(
    kernel: Kernel, target: Target, models: Sequence[CostModel]
) -> Estimate | None:
    """Return what `price_table` says of a table of one kernel; None: ask that."""
    if target.fits or target.measured or not kernel.known:
        return None
    priced = _first_price(kernel, target, models)
    if priced is None:
        return None
    name, found = priced
    seconds = found.seconds
    shared, own = interval_of(kernel, target, seconds) or found[1:3]
    if seconds < _roof_seconds(kernel, target):
        seconds = max(seconds, float(lower_bound(KernelTable([kernel]), target)[0]))
    return Estimate(
        np.array([seconds]),
        np.array([shared]),
        np.array([own]),
        [name],
        [found.provenance],
    )


def _first_price(
    kernel: Kernel, target: Target, models: Sequence[CostModel]
) -> tuple[str, Priced] | None:
    """Return what the first model says that claims a kernel; None: not one by one."""
    asked = [model for model in models if model.ops is None or kernel.op in model.ops]
    for model in sorted(asked, key=_order):
        if not is_built_in(model):
            return None
        if not _claims(model, kernel, target):
            continue
        estimate_one = getattr(model, "estimate_one", None)
        found: Priced | None = estimate_one and estimate_one(kernel, target)
        return None if found is None else (model.name, found)
    return None


def _claims(model: CostModel, kernel: Kernel, target: Target) -> bool:
    """Whether a model claims a kernel; one that claims all it is offered says so."""
    claims_one = getattr(model, "claims_one", None)
    if claims_one is not None:
        return bool(claims_one(kernel, target))
    return bool(model.claims(KernelTable([kernel]), target)[0])


def _order(model: CostModel) -> tuple[int, str]:
    return -model.priority, model.name


def _roof_seconds(kernel: Kernel, target: Target) -> float:
    """Return a time above which no lower bound is: all work, nothing saved."""
    device, work = target.device, kernel.work
    moved = work.bytes_read + work.bytes_written
    rate = device.memory.bytes_per_s
    for memory in reversed(device.memories):
        if moved <= memory.capacity_bytes:
            rate = memory.bytes_per_s
    peak = device.flops_per_s.get(kernel.math, math.inf)
    roof_s = max(moved / rate, work.flops / peak)
    if kernel.op != "memcpy" or kernel.params.get("kind") == "d2d":
        return roof_s
    crossing = max(moved, number_of(kernel.params, "bytes"))
    return max(roof_s, crossing / target.host_link.peak_bytes_per_s)
