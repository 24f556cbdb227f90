"""How far off predictions were on rows that are not reported: what intervals state.

Split conformal prediction (Vovk et al.; Lei et al., JASA 2018): of each GPU with
measured rows, op and dtype, nine in ten rows of those lie inside the interval, of
batched products and of others; where a network corrects an op, predicted by networks
that lack them. Products larger than those are that much less sure. Shared is what
their mean is off, which all kernels share; own is the rest. Short kernels are farther
off than long ones: both grow with a power of what memory moves in a kernel's time
(normalised scores: Papadopoulos et al., ICTAI 2008). A GPU without rows has the same of
GPUs that were left out of the fit, one after the other, widened as it may differ from
all of them, or what a model says where that was not done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import attrs
import numpy as np

from perfc.costmodels import attention, gemm
from perfc.costmodels.fitted_files import fitted
from perfc.costmodels.kernels import (
    FLOATS,
    Estimate,
    Flags,
    Floats,
    KernelTable,
    OneSignature,
)
from perfc.costmodels.machine import Target

BATCHED = " batched"
"""In the names of batched products."""

OLD = " before Volta"
"""In the names of other products there, whose fp32 kernels are Maxwell's: of no fit."""

_OLD = frozenset({"Maxwell", "Pascal"})

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
    wider = np.ones(len(kernels))
    if any(op == "gemm" for op, _, _ in kernels.kinds[0]):
        wider[gemm.beyond_rows(kernels, target)] = gemm.BEYOND
    for name, rows in interval_rows(kernels, target):
        if (found := _of(known, name)) is not None:
            sizes = interval_sizes(estimate.seconds[rows], target)
            factors = np.exp(np.log(sizes) * found[2])
            factors *= wider[rows]
            shared[rows], own[rows] = found[0] * factors, found[1] * factors
    return attrs.evolve(estimate, sigma_shared=shared, sigma_independent=own)


def interval_sizes(seconds: Floats, target: Target) -> Floats:
    """Return what memory moves in the time of kernels, by which they err more or less.

    Args:
        seconds: Of each kernel, shape (rows,); so is what is returned, in `SIZE`.
        target: Whose memory.

    """
    found: Floats = np.clip(seconds * _sizes_per_s(target), *SIZES)
    return found


def _sizes_per_s(target: Target) -> float:
    return min(target.device.memory.bytes_per_s, FASTEST) / SIZE


def _of(known: Mapping[str, Stated], name: str) -> Stated | None:
    """Return what is stated of a name; of batched products else that of others."""
    found = known.get(name)
    return known.get(name.replace(BATCHED, "")) if found is None else found


def _known(target: Target) -> Mapping[str, Stated]:
    """Return what is stated by op and dtype: of the GPU, or of GPUs left out."""
    intervals = fitted("intervals")
    measured: Mapping[str, Mapping[str, Stated]] = intervals["kernel"]
    unseen: Mapping[str, Stated] = intervals["unseen"]
    return measured.get(target.device.name, unseen if target.device.runs_cuda else {})


def interval_of(
    one: OneSignature, target: Target, seconds: float
) -> tuple[float, float] | None:
    """Return shared and own of one kernel that lasts *seconds*; None: by its model."""
    if one.text("phase", "forward") != "forward":
        return None
    if one.op == "attention" and not attention.is_measured(one, target):
        return None
    stored = one.math if one.math == "tf32" else one.kernel.dtype
    batched = one.op == "gemm" and one.param("b", 1.0) != 1
    stated, sizes_per_s = target.once(_stated)
    if (found := stated(one.op, stored, batched)) is None:
        return None
    shared, own, power = found
    size = min(max(seconds * sizes_per_s, _LEAST), _MOST)
    factor = FLOATS.exp(FLOATS.log(size) * power) if power else 1.0
    if one.op == "gemm" and gemm.is_beyond(one, target):
        factor *= gemm.BEYOND
    return shared * factor, own * factor


def _stated(
    target: Target,
) -> tuple[Callable[[str, str, bool], Stated | None], float]:
    """Return what is stated of an op, a type, and of batches; and sizes per second."""
    known = _known(target)

    @functools.cache
    def stated(op: str, stored: str, batched: bool) -> Stated | None:  # noqa: FBT001
        kind = ""
        if op == "gemm":
            kind = BATCHED if batched else _kind(target)
        return _of(known, f"{op}{kind} {stored}")

    return stated, _sizes_per_s(target)


def _kind(target: Target) -> str:
    """Return what tells products that are not batched from those on other GPUs."""
    return OLD if target.device.architecture in _OLD else ""


def call_sigma(kernels: KernelTable, target: Target, default: float) -> float:
    """Return how uncertain an eager call's time is, for rows of one op."""
    known = fitted("intervals")["call"].get(target.device.name, {})
    return float(known.get(str(kernels.op[0]), default)) if len(kernels) else default


def interval_rows(kernels: KernelTable, target: Target) -> Iterator[tuple[str, Flags]]:
    """Yield the names of intervals, and which rows have each; some are like no row."""
    kinds, at = kernels.kinds
    like_rows = kernels.text("phase", "forward") == "forward"
    for number, (op, dtype, math) in enumerate(kinds):
        stored = math if math == "tf32" else dtype
        rows = like_rows & (at == number)
        if op == "attention":
            rows &= attention.measured_rows(kernels, target)
        if op == "gemm":
            batched = rows & (kernels.param("b", 1.0) != 1)
            yield f"{op}{BATCHED} {stored}", batched
            rows &= ~batched
        kind = _kind(target) if op == "gemm" else ""
        yield f"{op}{kind} {stored}", rows
