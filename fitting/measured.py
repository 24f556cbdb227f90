"""Measured rows as a profile's table of kernels that were timed."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from perfc import costmodels
from perfc.costmodels.machine import MeasuredKernel, Signature
from perfc.costmodels.pricing import MEETING_OPS, measured_signature
from perfc.costmodels.streaming import IDLE, REPEATED
from perfc.fitting.observations import Observations
from perfc.fitting.scores import OWN_SOURCE
from perfc.ir import Kernel
from perfc.measurements import Measurement

MOST_KERNELS = 10_000
"""More are not kept: a profile is read in every analysis, so many in 0.2 s."""

_OF_NORMAL = math.sqrt(math.pi / 2)
"""Standard deviation of a normal distribution over its mean absolute deviation."""

_AROUND = 0.25
"""How uncertain what is around a kernel is, on a GPU: gaps differ from library to
library by a part of a microsecond, dispatches from op to op."""

_LOST = 0.5
"""Relative uncertainty from which a row says less of its kernel than a model does: of a
call of microseconds, what is left without the host's part may be nothing."""

_ALIKE = 0.01
"""Difference of two times that are called the same."""


def measured_table(
    seen: Observations, target: costmodels.Target
) -> tuple[costmodels.MeasuredKernels, Counter[str]]:
    """Return the kernels that rows decide, and how many rows decide none, by reason.

    Rows that are held out are in no profile, and those that another time than a model
    would meet decide nothing. Several rows of one kernel count as their median.

    Args:
        seen: Rows of *target*, without those that say nothing of a kernel.
        target: The sheet, as far as it was measured, without fits.

    """
    rows = seen.part(fitted=True)
    left_out: Counter[str] = Counter()
    by_signature: dict[Signature, list[MeasuredKernel]] = {}
    reasons = _why_not(rows, target)
    for found, why in zip(_timed(rows, target), reasons, strict=True):
        if not why and len(by_signature) >= MOST_KERNELS:
            known = found.signature in by_signature
            why = "" if known else f"more than {MOST_KERNELS} kernels"  # noqa: PLW2901
        if why:
            left_out[f"decide no kernel: {why}"] += 1
            continue
        by_signature.setdefault(found.signature, []).append(found)
    sure: list[MeasuredKernel] = []
    for same in by_signature.values():
        kernel = _together(same)
        if kernel.sigma > _LOST:
            left_out["decide no kernel: its time is lost in the host's"] += len(same)
            continue
        sure.append(kernel)
    return costmodels.MeasuredKernels.of(sure), left_out


def _timed(rows: Observations, target: costmodels.Target) -> Iterator[MeasuredKernel]:
    """Yield the measured kernel of each row, without what is around it."""
    around = 0.0 if target.device.synchronous else _AROUND
    # What is around a short kernel is known less well than that it cannot be faster.
    least_s = costmodels.lower_bound(rows.kernels, target)
    kernel_s = np.maximum(rows.measured_s - rows.offset_s, least_s)
    scatter = np.nan_to_num(rows.noise) * _OF_NORMAL * rows.measured_s
    sigma = np.hypot(scatter, around * rows.offset_s) / kernel_s
    listed = zip(kernel_s.tolist(), sigma.tolist(), strict=True)
    pairs = zip(rows.rows, rows.kernels.kernels, strict=True)
    for (row, kernel), (seconds, own) in zip(pairs, listed, strict=True):
        yield MeasuredKernel(
            measured_signature(kernel),
            seconds,
            own,
            row.n or 1,
            row.timing,
            row.source,
            repeated=_is_repeated(row),
        )


def _is_repeated(row: Measurement) -> bool:
    """Whether a row was timed again and again on the same operands, as others' are."""
    return not row.source.startswith(OWN_SOURCE)


def _together(found: Sequence[MeasuredKernel]) -> MeasuredKernel:
    """Return the rows of one kernel as one: perfc's own rows, if there are any."""
    rows = [each for each in found if not each.repeated] or found
    middle = sorted(rows, key=lambda each: each.seconds)[(len(rows) - 1) // 2]
    seconds = statistics.median(each.seconds for each in rows)
    spread = statistics.pstdev(math.log(each.seconds) for each in rows)
    return attrs.evolve(
        middle,
        seconds=seconds,
        sigma=math.hypot(middle.sigma, spread),
        n=sum(each.n for each in rows),
    )


def _why_not(rows: Observations, target: costmodels.Target) -> Iterator[str]:
    """Yield why each row does not decide its kernel; nothing if it does."""
    kernels, models = rows.kernels, costmodels.cost_models()
    impossible = rows.measured_s < costmodels.lower_bound(kernels, target)
    as_timed = costmodels.KernelTable(list(map(_as_timed, rows.rows, kernels.kernels)))
    ratio = costmodels.price(as_timed.kernels, target, models).seconds
    ratio /= costmodels.price(kernels.kernels, target, models).seconds
    unlike = np.abs(np.log(ratio)) > _ALIKE
    flags = zip(rows.rows, impossible.tolist(), unlike.tolist(), strict=True)
    for row, too_fast, other in flags:
        meeting = row.timing == "event" and row.op in MEETING_OPS
        reasons = (
            (too_fast, "faster than the sheet's rates allow"),
            (other, "timed on operands that L2 holds, or on an idle GPU"),
            (meeting and _is_repeated(row), "what the host takes is not known"),
        )
        yield next((reason for applies, reason in reasons if applies), "")


def _as_timed(row: Measurement, kernel: Kernel) -> Kernel:
    """Return the kernel as it was timed: `perfc validate` scores rows so."""
    if not _is_repeated(row):
        return kernel
    how = {REPEATED: True, IDLE: row.timing == "event"}
    return attrs.evolve(kernel, params=kernel.params.updated(**how))
