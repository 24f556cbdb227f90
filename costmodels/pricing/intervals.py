"""How far off predictions were on rows that are not reported: what intervals state.

Split conformal prediction (Vovk et al.; Lei et al., JASA 2018): of each GPU with
measured rows, op and dtype, nine in ten rows of those lie inside the interval, of
batched GEMMs and of others; where a network corrects an op, predicted by networks
that lack them. GEMMs larger than those are that much less sure. Shared is what
their mean is off, which all kernels share; own is the rest. Short kernels are farther
off than long ones: both grow with a power of what memory moves in a kernel's time
(normalised scores: Papadopoulos et al., ICTAI 2008). A GPU without rows has the same of
GPUs that were left out of the fit, one after the other, widened as it may differ from
all of them, or what a model says where that was not done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, cast

import attrs
import numpy as np

from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import (
    FLOATS,
    BringsIntervals,
    Estimate,
    Flags,
    Floats,
    IntervalGroup,
    KernelTable,
    OneGroup,
    OneSignature,
)
from perfc.costmodels.machine import Target
from perfc.costmodels.pricing.listed import INTERVALS_BY, listed

SIZE = 1e8
"""Bytes that memory moves in the time of a kernel which errs as the file says."""

SIZES = _LEAST, _MOST = 0.03, 30.0
"""Sizes, in those, beyond which kernels err alike: few rows are smaller or larger."""

FASTEST = 1e12
"""Bytes a second beyond which a faster memory makes no kernel longer by that measure:
kernels begin and end as slowly on fast GPUs."""

Stated: TypeAlias = tuple[float, float, float]
"""Shared, own, and the power of the size with which both grow."""


def with_intervals(
    estimate: Estimate, kernels: KernelTable, target: Target
) -> Estimate:
    """Put in what is known of the errors on *target*; else the model's own stay."""
    known = _known(target)
    if not known or not len(kernels):
        return estimate
    shared, own = estimate.sigma_shared.copy(), estimate.sigma_independent.copy()
    for names, rows, widths in _named_groups(kernels, target):
        if (found := _of(known, names)) is not None:
            sizes = interval_sizes(estimate.seconds[rows], target)
            factors = np.exp(np.log(sizes) * found[2])
            factors *= np.broadcast_to(widths, len(kernels))[rows]
            shared[rows], own[rows] = found[0] * factors, found[1] * factors
    return attrs.evolve(estimate, sigma_shared=shared, sigma_independent=own)


def interval_sizes(seconds: Floats, target: Target) -> Floats:
    """Return the bytes that memory moves in kernels' time, by which their errors vary.

    Args:
        seconds: Of each kernel, shape (rows,); so is what is returned, in `SIZE`.
        target: Whose memory.

    """
    found: Floats = np.clip(seconds * _sizes_per_s(target), *SIZES)
    return found


def _sizes_per_s(target: Target) -> float:
    return min(target.device.memory.bytes_per_s, FASTEST) / SIZE


def _of(known: Mapping[str, Stated], names: tuple[str, ...]) -> Stated | None:
    """Return the interval of the first name of which one is stated."""
    return next((known[name] for name in names if name in known), None)


def _known(target: Target) -> Mapping[str, Stated]:
    """Return the stated intervals by op and dtype: of the GPU, or of GPUs left out."""
    intervals = fitted("intervals")
    measured: Mapping[str, Mapping[str, Stated]] = intervals["kernel"]
    unseen: Mapping[str, Stated] = intervals["unseen"]
    return measured.get(target.device.name, unseen if target.device.runs_cuda else {})


def interval_of(
    one: OneSignature, target: Target, seconds: float
) -> tuple[float, float] | None:
    """Return shared and own of one kernel that lasts *seconds*; None: by its model."""
    if one.text("phase") != "forward":
        return None
    group = _ALL_OF_ONE
    if (owner := INTERVALS_BY.get(one.op)) is not None:
        model = cast("BringsIntervals", listed(owner.model).model)
        said = model.interval_group_of_one(one, target)
        if said is None:
            return None
        group = said
    stored = one.math if one.math == "tf32" else one.kernel.dtype
    stated, sizes_per_s = target.once(_stated)
    if (found := stated(one.op, stored, group.suffixes)) is None:
        return None
    shared, own, power = found
    size = min(max(seconds * sizes_per_s, _LEAST), _MOST)
    factor = FLOATS.exp(FLOATS.log(size) * power) if power else 1.0
    factor *= group.width
    return shared * factor, own * factor


_ALL_OF_ONE = OneGroup(("",))

_Stated: TypeAlias = Callable[[str, str, tuple[str, ...]], Stated | None]


def _stated(target: Target) -> tuple[_Stated, float]:
    """Return a lookup of intervals by op, type and group; and sizes per second."""
    known = _known(target)

    @functools.cache
    def stated(op: str, stored: str, suffixes: tuple[str, ...]) -> Stated | None:
        return _of(known, _names(op, stored, suffixes))

    return stated, _sizes_per_s(target)


def _names(op: str, stored: str, suffixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{op}{suffix} {stored}" for suffix in suffixes)


def call_sigma(kernels: KernelTable, target: Target, default: float) -> float:
    """Return how uncertain an eager call's time is, for rows of one op."""
    known = fitted("intervals")["call"].get(target.device.name, {})
    return float(known.get(str(kernels.op[0]), default)) if len(kernels) else default


def interval_rows(kernels: KernelTable, target: Target) -> Iterator[tuple[str, Flags]]:
    """Yield the names of intervals, and which rows have each; some are like no row."""
    for names, rows, _ in _named_groups(kernels, target):
        yield names[0], rows


def _named_groups(
    kernels: KernelTable, target: Target
) -> Iterator[tuple[tuple[str, ...], Flags, Floats | float]]:
    """Yield the names that an interval may have, which rows have it, and their widths.

    perfc's own models say which kernels of an op err alike: all, where none does.
    """
    kinds, at = kernels.kinds
    like_rows = kernels.text("phase") == "forward"
    groups: dict[str, list[IntervalGroup]] = {}
    for number, (op, dtype, math) in enumerate(kinds):
        stored = math if math == "tf32" else dtype
        if op not in groups:
            groups[op] = list(_groups(op, kernels, target))
        for suffixes, rows, widths in groups[op]:
            chosen = like_rows & (at == number) & rows
            yield _names(op, stored, suffixes), chosen, widths


def _groups(op: str, kernels: KernelTable, target: Target) -> Iterator[IntervalGroup]:
    owner = INTERVALS_BY.get(op)
    if owner is None:
        yield IntervalGroup(("",), np.ones(len(kernels), dtype=np.bool_))
        return
    model = cast("BringsIntervals", listed(owner.model).model)
    yield from model.interval_groups(kernels, target)
