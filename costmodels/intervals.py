"""How far off predictions were on rows that no fit has seen: what intervals state.

Split conformal prediction (Vovk et al.; Lei et al., JASA 2018): of each GPU with
measured rows, op and dtype, nine in ten rows of a part that is neither fitted nor
reported lie inside the interval, of batched products and of others. Shared is what
their mean is off, which all kernels share; own is the rest. A GPU without rows has the
same of GPUs that were left out of the fit, one after the other, or what a model says
where that was not done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from perfc.costmodels.attention_residual import measured_rows as measured_attention
from perfc.costmodels.fitted_file import fitted
from perfc.costmodels.protocol import Estimate, Flags, KernelTable
from perfc.costmodels.target import Target
from perfc.ir import Kernel

BATCHED = " batched"
"""In the names of batched products."""


def with_intervals(
    estimate: Estimate, kernels: KernelTable, target: Target
) -> Estimate:
    """Put in what is known of the errors on *target*; else the model's own stay."""
    known = _known(target)
    if not known or not len(kernels):
        return estimate
    shared, own = estimate.sigma_shared.copy(), estimate.sigma_independent.copy()
    for name, rows in interval_rows(kernels, target):
        if (found := _of(known, name)) is not None:
            shared[rows], own[rows] = found
    return attrs.evolve(estimate, sigma_shared=shared, sigma_independent=own)


def _of(
    known: Mapping[str, tuple[float, float]], name: str
) -> tuple[float, float] | None:
    """Return shared and own of a name; of batched products else those of others."""
    return known.get(name, known.get(name.replace(BATCHED, "")))


def _known(target: Target) -> Mapping[str, tuple[float, float]]:
    """Return shared and own by op and dtype: of the GPU, or of GPUs left out."""
    intervals = fitted("intervals")
    measured: Mapping[str, Mapping[str, tuple[float, float]]] = intervals["kernel"]
    unseen: Mapping[str, tuple[float, float]] = intervals["unseen"]
    guessed = target.device.runs_cuda and not target.profile
    return measured.get(target.name, unseen if guessed else {})


def interval_of(kernel: Kernel, target: Target) -> tuple[float, float] | None:
    """Return shared and own of one kernel; None: what its model says.

    Not of attention, whose rows are told by more than their type.
    """
    params = kernel.params
    if params.get("phase", "forward") != "forward":
        return None
    stored = kernel.math if kernel.math == "tf32" else kernel.dtype
    batched = kernel.op == "gemm" and params.get("b", 1) != 1
    name = f"{kernel.op}{BATCHED if batched else ''} {stored}"
    return _of(target.once(_known), name)


def call_sigma(kernels: KernelTable, target: Target, default: float) -> float:
    """Return how uncertain an eager call's time is, for rows of one op."""
    known = fitted("intervals")["call"].get(target.name, {})
    return float(known.get(str(kernels.op[0]), default)) if len(kernels) else default


def interval_rows(kernels: KernelTable, target: Target) -> Iterator[tuple[str, Flags]]:
    """Yield the names of intervals, and which rows have each; some are like no row."""
    kinds, at = kernels.kinds
    like_rows = kernels.text("phase", "forward") == "forward"
    for number, (op, dtype, math) in enumerate(kinds):
        stored = math if math == "tf32" else dtype
        rows = like_rows & (at == number)
        if op == "attention":
            rows &= measured_attention(kernels, target)
        if op == "gemm":
            batched = rows & (kernels.param("b", 1.0) != 1)
            yield f"{op}{BATCHED} {stored}", batched
            rows &= ~batched
        yield f"{op} {stored}", rows
