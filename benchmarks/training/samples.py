"""Measured rows of one op on one GPU, split for a fit."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np

from perfc.costmodels import KernelTable, Target, lower_bound
from perfc.costmodels.gemm import SIMT_MODES
from perfc.costmodels.kernels import CostModel, Flags, Floats, Indices
from perfc.costmodels.pricing import as_timed, price_table
from perfc.costmodels.roofline import ROOFLINE
from perfc.fitting.scores import (
    GroupKey,
    TablePricer,
    coverage,
    groups_of,
    known_target,
    priced,
)
from perfc.measurements import MeasuredColumns

FITTED, CALIBRATION, TEST = 0, 1, 2
"""What a row is for: the fit, the intervals, or the report."""


def part_of(params: str) -> int:
    """Return the part that rows of these sizes are in, on all GPUs alike.

    Half of them are fitted; a quarter says how far off the fit is, for the intervals; a
    quarter is only reported.
    """
    number = zlib.crc32(b"perfc kernel split 1" + params.encode()) % 4
    return (FITTED, CALIBRATION, FITTED, TEST)[number]


def fits_weight(n: int, k: int) -> bool:
    """Whether GEMMs on tensor cores with these are fitted, for all m and GPUs."""
    return _weight_number(n, k) % 4 != 0


def part_of_weight(n: int, k: int) -> int:
    """Return the part that tensor-core GEMMs of (n, k) are in, for all m and GPUs.

    Three quarters of the (n, k) are fitted, an eighth is for the intervals, an eighth
    is only reported.
    """
    if fits_weight(n, k):
        return FITTED
    return (CALIBRATION, TEST)[_weight_number(n, k) // 4 % 2]


def _weight_number(n: int, k: int) -> int:
    return zlib.crc32(f"perfc gemm n {n} k {k}".encode())


@attrs.frozen(eq=False)
class Sample:
    """Rows of one op, dtype and timing on one GPU.

    Attributes:
        key: Which.
        target: The GPU.
        table: Signatures.
        measured_s: Shape (rows,).
        part: What each row is for.
        apart_s: What the kernels take by networks that lack the row, shape (rows,);
            None: those that perfc ships have not seen it either.

    """

    key: GroupKey
    target: Target
    table: KernelTable
    measured_s: Floats
    part: Indices
    apart_s: Floats | None = None

    def __len__(self) -> int:
        return len(self.measured_s)

    def take(self, rows: Indices) -> Sample:
        """Return some of the rows."""
        return attrs.evolve(
            self,
            table=self.table.take(rows),
            measured_s=self.measured_s[rows],
            part=self.part[rows],
            apart_s=None if self.apart_s is None else self.apart_s[rows],
        )

    def of(self, part: int) -> Sample:
        """Return the rows that are for one thing."""
        return self.take(np.flatnonzero(self.part == part))

    def predicted_s(self, models: CostModel | Sequence[CostModel]) -> Floats:
        """Return the seconds that the rows would measure by some models."""
        if isinstance(models, Sequence):
            seconds = price_table(self.table, self.target, models).seconds
        else:
            seconds = models.estimate(self.table, self.target).seconds
            seconds = np.maximum(seconds, lower_bound(self.table, self.target))
        return self.timed_s(seconds)

    def kernel_s(self, models: Sequence[CostModel]) -> Floats:
        """Return the seconds of the kernels by models that have not seen their rows."""
        if self.apart_s is not None:
            return self.apart_s
        return price_table(self.table, self.target, models).seconds

    def bound_s(self) -> Floats:
        """Return the seconds of the kernels by bound / 0.8 + 3 us."""
        return lower_bound(self.table, self.target) / ROOFLINE.efficiency + 3e-6

    def roofline_s(self) -> Floats:
        """Return the seconds that the rows would measure by `bound_s`."""
        return self.timed_s(self.bound_s())

    def timed_s(self, kernel_s: Floats) -> Floats:
        """Return the seconds that a measurement of kernels would say."""
        none = np.zeros(len(self))
        timing = self.key.timing
        return as_timed(kernel_s, none, self.table, self.target, timing).seconds

    def stated(self, models: Sequence[CostModel]) -> tuple[Floats, Flags, float]:
        """Return predicted times, which rows are inside 90 %, and its median width."""
        estimate = priced(self.table, self.target, models)
        seconds = estimate.seconds if self.apart_s is None else self.apart_s
        around = (self.table, self.target, self.key.timing)
        timed = as_timed(seconds, estimate.sigma, *around)
        inside, width = coverage(timed.seconds, timed.sigma, self.measured_s)
        return timed.seconds, inside, width


def samples_of(rows: MeasuredColumns) -> Iterator[Sample]:
    """Yield the rows of each group that can be priced, but for those held out.

    What a table marks `split=test` is in no sample: no fit can see it.

    Raises:
        MeasurementError: a row has another mark than the format knows.

    """
    return _samples(rows, ~rows.held_out)


def held_out_samples(rows: MeasuredColumns) -> Iterator[Sample]:
    """Yield those that `samples_of` leaves out, all to be reported.

    Raises:
        MeasurementError: a row has another mark than the format knows.

    """
    for sample in _samples(rows, rows.held_out):
        yield attrs.evolve(sample, part=np.full(len(sample), TEST, dtype=np.intp))


def _samples(rows: MeasuredColumns, wanted: Flags) -> Iterator[Sample]:
    pricer = TablePricer(rows)
    parts = np.array([part_of(text) for text in rows.params.values], dtype=np.intp)
    for key, at in groups_of(rows):
        target = known_target(key.target)
        if target is None:
            continue
        for usable, signatures in pricer.usable_tables(key, at, target):
            mine = np.flatnonzero(wanted[usable])
            if not len(mine):
                continue
            chosen, table = usable[mine], signatures.take(mine)
            part = parts[rows.params.at[chosen]]
            if key.op == "gemm" and key.dtype not in SIMT_MODES:
                part = _parts_by_weight(table)
            yield Sample(key, target, table, rows.latency_us[chosen] * 1e-6, part)


def to_fit(samples: Iterable[Sample], op: str) -> list[Sample]:
    """Return the rows to fit of one op, of each sample that has any."""
    mine = (sample.of(FITTED) for sample in samples if sample.key.op == op)
    return [sample for sample in mine if len(sample)]


def _parts_by_weight(table: KernelTable) -> Indices:
    sizes = zip(table.param("n").tolist(), table.param("k").tolist(), strict=True)
    return np.array([part_of_weight(int(n), int(k)) for n, k in sizes], dtype=np.intp)
