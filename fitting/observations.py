"""Measured rows as kernels with the seconds that they took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc import measurements
from perfc.costmodels import COLLECTIVES, KernelTable, Target
from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import Family, family_of
from perfc.ir import Kernel

LEAST_US = 1e-6
"""Shortest time of a row: nothing takes less than a picosecond."""

LONG_EVENT_US = 150.0
"""Event pairs on a GPU hold the host's dispatch, which ends before a long kernel."""

DISPATCH_SHARE = 0.55
"""Share of an op's shortest row that a line through long copies leaves of it."""


_NORMAL = 2 * 1.2815515655446004
"""Between the tenth and the ninetieth percentile of a normal distribution."""


@attrs.frozen(eq=False)
class Observations:
    """Kernels of one target that were timed.

    Attributes:
        rows: What was measured.
        kernels: What ran, one row each.
        measured_s: What the row says that it took.
        offset_s: How much of that is not the kernel: gap, dispatch.
        noise: How far off the row itself is on average, as a share of it; NaN where
            it does not say.
        fitted: Whether the row may be fitted; else it is one to report.

    """

    rows: Sequence[measurements.Measurement]
    kernels: KernelTable
    measured_s: Floats
    offset_s: Floats
    noise: Floats
    fitted: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.measured_s)

    @property
    def families(self) -> list[Family]:
        """The family of each row."""
        return [family_of(kernel) for kernel in self.kernels.kernels]

    def take(self, rows: NDArray[np.intp]) -> Observations:
        """Return some of the rows."""
        numbers: list[int] = rows.tolist()
        return Observations(
            [self.rows[number] for number in numbers],
            self.kernels.take(rows),
            self.measured_s[rows],
            self.offset_s[rows],
            self.noise[rows],
            self.fitted[rows],
        )

    def part(self, *, fitted: bool) -> Observations:
        """Return the rows to fit, or those to report."""
        return self.take(np.flatnonzero(self.fitted == fitted))


def observe(
    rows: Sequence[measurements.Measurement], target: Target, dispatch_s: float = 0.0
) -> tuple[Observations, Counter[str]]:
    """Return the rows that can be fitted, and counts of those left out, by reason.

    Args:
        rows: Of any target and timing.
        target: Whose rows are taken.
        dispatch_s: What the host takes around each kernel of a synchronous device.

    """
    left_out: Counter[str] = Counter()
    kept: list[measurements.Measurement] = []
    kernels: list[Kernel] = []
    known: dict[tuple[str, str, int], Kernel | str] = {}  # tables say a shape often
    for row in rows:
        why = _why_not(row, target)
        if why:
            left_out[why] += 1
            continue
        cells = row.op, row.dtype, id(row.params)
        if cells not in known:
            known[cells] = _kernel_or_why(row, target)
        kernel = known[cells]
        if isinstance(kernel, str):
            left_out[kernel] += 1
            continue
        kept.append(row)
        kernels.append(kernel)
    if target.device.synchronous:
        offsets = np.full(len(kept), dispatch_s)
    else:
        offsets = _offsets_s(kept, rows, target)
    found = Observations(
        kept,
        KernelTable(kernels),
        np.array([row.latency_us * 1e-6 for row in kept]),
        offsets,
        np.array([_noise(row) for row in kept]),
        np.array([is_fitted(row) for row in kept], dtype=np.bool_),
    )
    long_enough = np.flatnonzero(offsets < found.measured_s)
    if len(long_enough) < len(kept):
        left_out["shorter than what is around it"] += len(kept) - len(long_enough)
    return found.take(long_enough), left_out


def _kernel_or_why(row: measurements.Measurement, target: Target) -> Kernel | str:
    """Return the signature of a row, or why *target* has none."""
    try:
        kernel = measurements.kernel_of(row)
    except measurements.MeasurementError as error:
        return str(error)
    known = kernel.math in target.device.flops_per_s
    return kernel if known else f"{target.name} has no {kernel.math}"


def _why_not(row: measurements.Measurement, target: Target) -> str:
    """Return why a row says nothing of a kernel of *target*; empty if it does."""
    event = row.timing == "event" and not target.device.synchronous
    names = {target.name, target.device.name}
    reasons = (
        (row.target not in names, f"of target {row.target}"),
        (row.op in COLLECTIVES, "of collectives, which are fitted apart"),
        (row.op not in measurements.KERNEL_OPS, f"op {row.op} is no kernel"),
        (bool(row.throttled), "throttled"),
        (row.latency_us < LEAST_US, "took no time"),
        (row.timing in {"host", "nccl"}, f"timing {row.timing}"),
        (
            event and row.latency_us < LONG_EVENT_US,
            f"event pairs below {LONG_EVENT_US:g} us",
        ),
    )
    return next((reason for applies, reason in reasons if applies), "")


def _offsets_s(
    kept: Sequence[measurements.Measurement],
    rows: Sequence[measurements.Measurement],
    target: Target,
) -> Floats:
    """Return the seconds around the kernel in each row of a GPU.

    What is around event pairs the rows to fit say, of an op without any the others.
    """
    of_target = [row for row in rows if row.target == target.device.name]
    # Rows of a system are of its GPUs, too.
    events = [row for row in (*kept, *of_target) if row.timing == "event"]
    held_out, fitted = (
        _shortest_us(row for row in events if is_fitted(row) is wanted)
        for wanted in (False, True)
    )
    shortest_us = {**held_out, **fitted}
    around_s: Mapping[str, Callable[[str], float]] = {
        "kernel": lambda _: 0.0,
        "graph": lambda _: target.device.graph_gap_s,
        "event": lambda op: DISPATCH_SHARE * shortest_us[op] * 1e-6,
    }
    return np.array([around_s[row.timing](row.op) for row in kept])


def _shortest_us(rows: Iterable[measurements.Measurement]) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in rows:
        found[row.op] = min(found.get(row.op, row.latency_us), row.latency_us)
    return found


def _noise(row: measurements.Measurement) -> float:
    """Return the mean error of a mean of `n` that vary as the percentiles say.

    As if they were independent and normal: what is slow for minutes is not in it.
    """
    if row.p10_us is None or row.p90_us is None or not row.n:
        return float("nan")
    deviation = (row.p90_us - row.p10_us) / _NORMAL / math.sqrt(row.n)
    return math.sqrt(2 / math.pi) * deviation / row.latency_us


def is_fitted(row: measurements.Measurement) -> bool:
    """Whether a row of a kernel may be fitted: a third of those without a mark not."""
    return (row.split or measurements.split_of(row.op, row.params)) == measurements.FIT
