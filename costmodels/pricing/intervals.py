"""How far off predictions were on rows that are not reported: what intervals state.

Split conformal prediction (Vovk et al.; Lei et al., JASA 2018): of each GPU with
measured rows, op and dtype, nine in ten rows of those lie inside the interval, of
batched GEMMs and of others; where a network corrects an op, predicted by networks
that lack them. GEMMs larger than those are that much less sure. Shared is what
their mean is off, which all kernels share; own is the rest. Short kernels are farther
off than long ones: both grow with a power of what memory moves in a kernel's time
(normalised scores: Papadopoulos et al., ICTAI 2008). A GPU without rows has the same of
GPUs that were left out of the fit, one after the other, widened as it may differ from
all of them, or what a model says where that was not done; one that was measured in
other types has the wider of both, as kernels of another type are others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import attrs
import numpy as np

from perfc.costmodels.constants import constants
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
from perfc.costmodels.machine import SAME_KERNELS, Target
from perfc.costmodels.pricing.listed import INTERVALS_BY, listed

Z90 = constants("kernels").number("z90")
"""Standard deviations within which nine in ten lie, of a normal distribution."""

SIZE = 1e8
"""Bytes that memory moves in the time of a kernel which errs as the file says."""

SIZES = _LEAST, _MOST = 0.03, 30.0
"""Sizes, in those, beyond which kernels err alike: few rows are smaller or larger."""

FASTEST = 1e12
"""Bytes a second beyond which a faster memory makes no kernel longer by that measure:
kernels begin and end as slowly on fast GPUs."""

Stated: TypeAlias = tuple[float, float, float]
"""Shared, own, and the power of the size with which both grow."""

_BY_TYPE = frozenset({"gemm"})
"""Ops whose kernels are others for each type: rows of one say nothing of another."""


class _Found(NamedTuple):
    """An interval, and whether the model's own stays where that is wider."""

    stated: Stated
    is_least: bool


class _Known(NamedTuple):
    """Stated intervals by op and dtype: of the GPU, and of GPUs left out."""

    own: Mapping[str, Stated]
    unseen: Mapping[str, Stated]


def with_intervals(
    estimate: Estimate, kernels: KernelTable, target: Target
) -> Estimate:
    """Put in what is known of the errors on *target*; else the model's own stay."""
    known = _known(target)
    if not any(known) or not len(kernels):
        return estimate
    shared, own = estimate.sigma_shared.copy(), estimate.sigma_independent.copy()
    for op, stored, (suffixes, rows, widths, spreads) in _groups_of(kernels, target):
        if (found := _of(known, op, stored, suffixes)) is not None:
            sizes = interval_sizes(estimate.seconds[rows], target)
            factors = np.exp(np.log(sizes) * found.stated[2])
            factors *= _some(widths, rows)
            ours, theirs = found.stated[0] * factors, found.stated[1] * factors
            if found.is_least:
                wider = np.hypot(shared[rows], own[rows]) > np.hypot(ours, theirs)
                ours = np.where(wider, shared[rows], ours)
                theirs = np.where(wider, own[rows], theirs)
            shared[rows], own[rows] = ours, theirs
        if np.any(spreads):
            end = _some(spreads, rows) * (1 / Z90)
            own[rows] = np.sqrt(own[rows] * own[rows] + end * end)
    return attrs.evolve(estimate, sigma_shared=shared, sigma_independent=own)


def _some(numbers: Floats | float, rows: Flags) -> Floats | float:
    """Return those of some rows, or the one of all."""
    return numbers[rows] if isinstance(numbers, np.ndarray) else numbers


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


def _of(known: _Known, op: str, stored: str, suffixes: Sequence[str]) -> _Found | None:
    """Return the interval of the first name of which one is stated.

    That of GPUs left out is taken by one that was measured, too, where its own rows are
    of other types and the op has kernels by type.
    """
    by_type = op in _BY_TYPE
    types = [stored]
    if by_type and stored in SAME_KERNELS:
        types.append(SAME_KERNELS[stored])
    for each in types:
        for name in _names(op, each, suffixes):
            if name in known.own:
                return _Found(known.own[name], is_least=False)
    if known.own and not by_type:
        return None
    for each in types:
        for name in _names(op, each, suffixes):
            if name in known.unseen:
                is_least = bool(known.own) or each != stored
                return _Found(known.unseen[name], is_least=is_least)
    return None


def _known(target: Target) -> _Known:
    """Return the stated intervals: of the GPU, and of GPUs left out."""
    intervals = fitted("intervals")
    measured: Mapping[str, Mapping[str, Stated]] = intervals["kernel"]
    unseen: Mapping[str, Stated] = intervals["unseen"]
    own = measured.get(target.device.name, {})
    return _Known(own, unseen if target.device.runs_cuda else {})


def interval_of(
    one: OneSignature, target: Target, seconds: float, said: tuple[float, float]
) -> tuple[float, float]:
    """Return shared and own of one kernel that lasts *seconds*; *said* by its model."""
    if one.text("phase") != "forward":
        return said
    group = _ALL_OF_ONE
    if (owner := INTERVALS_BY.get(one.op)) is not None:
        model = cast("BringsIntervals", listed(owner.model).model)
        brought = model.interval_group_of_one(one, target)
        if brought is None:
            return said
        group = brought
    stored = one.math if one.math == "tf32" else one.kernel.dtype
    find, sizes_per_s = target.once(_finder)
    found = find(one.op, stored, group.suffixes)
    shared, own = (
        said
        if found is None
        else _sized(found, seconds * sizes_per_s, group.width, said)
    )
    if group.spread:
        end = group.spread * (1 / Z90)
        own = FLOATS.sqrt(own * own + end * end)
    return shared, own


def _sized(
    found: _Found, size: float, width: float, said: tuple[float, float]
) -> tuple[float, float]:
    """Return shared and own of a kernel of a *size*, in `SIZE`, by what was found."""
    shared, own, power = found.stated
    size = min(max(size, _LEAST), _MOST)
    factor = FLOATS.exp(FLOATS.log(size) * power) if power else 1.0
    factor *= width
    shared, own = shared * factor, own * factor
    if found.is_least and math.hypot(*said) > math.hypot(shared, own):
        return said
    return shared, own


_ALL_OF_ONE = OneGroup(("",))

_Finder: TypeAlias = Callable[[str, str, tuple[str, ...]], _Found | None]


def _finder(target: Target) -> tuple[_Finder, float]:
    """Return a lookup of intervals by op, type and group; and sizes per second."""
    known = _known(target)

    @functools.cache
    def find(op: str, stored: str, suffixes: tuple[str, ...]) -> _Found | None:
        return _of(known, op, stored, suffixes)

    return find, _sizes_per_s(target)


def _names(op: str, stored: str, suffixes: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{op}{suffix} {stored}" for suffix in suffixes)


def call_sigma(kernels: KernelTable, target: Target, default: float) -> float:
    """Return how uncertain an eager call's time is, for rows of one op."""
    known = fitted("intervals")["call"].get(target.device.name, {})
    return float(known.get(str(kernels.op[0]), default)) if len(kernels) else default


def interval_rows(kernels: KernelTable, target: Target) -> Iterator[tuple[str, Flags]]:
    """Yield the names of intervals, and which rows have each; some are like no row."""
    for op, stored, group in _groups_of(kernels, target):
        yield _names(op, stored, group.suffixes)[0], group.rows


def _groups_of(
    kernels: KernelTable, target: Target
) -> Iterator[tuple[str, str, IntervalGroup]]:
    """Yield op and type of kernels that err alike, and which they are.

    perfc's own models say which kernels of an op err alike: all, where none does.
    """
    kinds, at = kernels.kinds
    like_rows = kernels.text("phase") == "forward"
    groups: dict[str, list[IntervalGroup]] = {}
    for number, (op, dtype, mode) in enumerate(kinds):
        stored = mode if mode == "tf32" else dtype
        if op not in groups:
            groups[op] = list(_groups(op, kernels, target))
        for group in groups[op]:
            chosen = like_rows & (at == number) & group.rows
            yield op, stored, group._replace(rows=chosen)


def _groups(op: str, kernels: KernelTable, target: Target) -> Iterator[IntervalGroup]:
    owner = INTERVALS_BY.get(op)
    if owner is None:
        yield IntervalGroup(("",), np.ones(len(kernels), dtype=np.bool_))
        return
    model = cast("BringsIntervals", listed(owner.model).model)
    yield from model.interval_groups(kernels, target)
