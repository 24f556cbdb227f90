"""A profile from whole networks that were measured: `perfc.workloads/1`.

One factor for each op, type and phase of kernels, so that iterations take what they
were measured to take, and what libraries hold of memory besides what perfc counts.
Factors stay near 1 where the rows say little of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.machine import SCALE, START, Family, KernelFit, family_of
from perfc.fitting.errors import Errors, errors_of
from perfc.fitting.least_squares import fit_terms
from perfc.ir import PerfcError
from perfc.measurements import TEST, WorkloadMeasurement
from perfc.passes.facts import SegmentKind
from perfc.tools.analysis import analyze
from perfc.tools.given import read_prune
from perfc.tools.models import load
from perfc.tools.reports import Report
from perfc.tools.request import INPUTS

Floats: TypeAlias = NDArray[np.float64]

FEWEST = 2
"""Rows to fit below which nothing can be told."""

MOST = 8.0
"""Largest factor."""

_STIFFNESS = 0.05
"""Weight of a factor of 2, in rows that are off by their whole time."""

_FOLDS = 3
_LEAST_SIGMA = 0.02
_PRUNE, _MIB = "prune", 2**20


Both: TypeAlias = "tuple[Errors | None, Errors | None]"
"""Errors without a profile and with one."""


@attrs.frozen
class NetworkFit:
    """What measured networks say of a device.

    Attributes:
        target: Its sheet.
        fits: A factor for each family of kernels.
        fields: Fields of the sheet: what libraries hold of memory.
        rows: Rows that were fitted.
        times: Errors of times without the profile, and of each third of the settings
            by the others.
        memory: Likewise of peak memory; None where none was measured.

    """

    target: str
    fits: tuple[KernelFit, ...]
    fields: Mapping[str, float]
    rows: int
    times: Both
    memory: Both


@attrs.frozen(eq=False)
class _Seen:
    """Rows of one target, and what perfc says of them.

    Attributes:
        families: Those of all kernels.
        amounts: Seconds of each family on the critical path, shape (rows, families).
        offset_s: The rest of the critical path, shape (rows,).
        measured_s: Measured times, shape (rows,).
        folds: Which third of the settings a row is of, shape (rows,).
        memory: Predicted and measured bytes, shape (rows, 2); 0 where none were.

    """

    families: tuple[Family, ...]
    amounts: Floats
    offset_s: Floats
    measured_s: Floats
    folds: NDArray[np.intp]
    memory: Floats

    def factors(self, rows: NDArray[np.bool_]) -> Floats:
        """Return the factor of each family that some rows say."""
        ones = np.ones(len(self.families))
        return fit_terms(
            self.amounts[rows],
            self.measured_s[rows],
            ones,
            self.offset_s[rows],
            most=MOST * ones,
            stiffness=_STIFFNESS,
        )

    def times_s(self, factors: Floats) -> Floats:
        """Return the seconds of all rows with some factors."""
        return self.offset_s + self.amounts @ factors

    def library_bytes(self, rows: NDArray[np.bool_]) -> float:
        """Return the bytes that libraries hold, by some rows: not below 0."""
        predicted, measured = self.memory[rows & (self.memory[:, 1] > 0)].T
        more = float(np.median(measured - predicted)) if len(measured) else 0.0
        return max(more, 0.0)


def calibrate_networks(rows: Sequence[WorkloadMeasurement]) -> NetworkFit:
    """Fit a profile to whole networks of one machine, those marked `test` left out.

    Raises:
        PerfcError: the rows are of several targets or of models that perfc has not, or
            too few.

    """
    names = sorted({row.target for row in rows})
    if len(names) != 1:
        found = f"of {', '.join(names)}" if names else "no rows"
        msg = f"expected rows of one target, found {found}; give tables of one machine"
        raise PerfcError(msg)
    fitted = [row for row in rows if row.split != TEST]
    if len(fitted) < FEWEST:
        msg = (
            f"{len(fitted)} measured networks to fit: expected {FEWEST} or more, of "
            "several sizes"
        )
        raise PerfcError(msg)
    seen = _look(fitted)
    whole = np.ones(len(fitted), dtype=bool)
    held = _left_out(seen)
    library_mib = seen.library_bytes(whole) / _MIB
    unfitted = seen.times_s(np.ones(len(seen.families)))
    return NetworkFit(
        target=names[0],
        fits=_fits(seen, seen.factors(whole), held),
        fields={"gpu.library_mib": library_mib} if library_mib else {},
        rows=len(fitted),
        times=(errors_of(unfitted, seen.measured_s), errors_of(held, seen.measured_s)),
        memory=_memory_errors(seen),
    )


def _left_out(seen: _Seen) -> Floats:
    """Return the time of each row by factors of the settings in the other thirds."""
    found = seen.times_s(np.ones(len(seen.families)))
    for fold in range(_FOLDS):
        others = seen.folds != fold
        if others.any():
            told = seen.times_s(seen.factors(others))
            found = np.where(others, found, told)
    return found


def _memory_errors(seen: _Seen) -> Both:
    known = seen.memory[:, 1] > 0
    predicted, measured = seen.memory[known].T
    told = predicted.copy()
    for fold in range(_FOLDS):
        rows = seen.folds[known] == fold
        told[rows] += seen.library_bytes(seen.folds != fold)
    return errors_of(predicted, measured), errors_of(told, measured)


def _fits(seen: _Seen, factors: Floats, held_s: Floats) -> tuple[KernelFit, ...]:
    off = np.log(held_s / seen.measured_s)
    shared = max(abs(float(off.mean())), _LEAST_SIGMA)
    own = max(float(off.std()), _LEAST_SIGMA)
    return tuple(
        KernelFit(
            family,
            {START: 0.0, SCALE: float(factor)},
            sigma_shared=shared,
            sigma_independent=own,
            rows=int(np.count_nonzero(seen.amounts[:, at])),
        )
        for at, (family, factor) in enumerate(zip(seen.families, factors, strict=True))
    )


def _look(rows: Sequence[WorkloadMeasurement]) -> _Seen:
    """Predict each row: what takes how long on its critical path, and memory."""
    parts: list[Mapping[Family, float]] = []
    offsets: list[float] = []
    memory: list[tuple[float, float]] = []
    for row in rows:
        report = _report(row)
        taken = _by_family(report)
        parts.append(taken)
        offsets.append(report.time_us * 1e-6 - sum(taken.values()))
        peak = float(report.memory["peak_bytes"])
        memory.append((peak, float(row.peak_memory_bytes or 0)))
    families = tuple(sorted({family for taken in parts for family in taken}))
    amounts = [[taken.get(family, 0.0) for family in families] for taken in parts]
    return _Seen(
        families,
        np.array(amounts),
        np.array(offsets),
        np.array([row.time_us * 1e-6 for row in rows]),
        np.array(list(_folds(rows)), dtype=np.intp),
        np.array(memory),
    )


def _folds(rows: Sequence[WorkloadMeasurement]) -> Iterator[int]:
    """Yield which third of the settings each row is of: its batch is no setting."""
    known: dict[tuple[object, ...], int] = {}
    for row in rows:
        setting = (row.model, row.params, row.mode, row.dtype, row.runtime)
        yield known.setdefault(setting, len(known)) % _FOLDS


def _by_family(report: Report) -> Mapping[Family, float]:
    """Return the seconds of kernels on the critical path, by family."""
    found: defaultdict[Family, float] = defaultdict(float)
    results = report.results
    for segment in results.path.segments:
        kernel = results.kernel(segment.task)
        if kernel is not None and segment.kind is SegmentKind.KERNEL:
            found[family_of(kernel).whole] += segment.duration_s
    return found


def _report(row: WorkloadMeasurement) -> Report:
    """Predict what a row measured.

    Raises:
        PerfcError: perfc has no such model, or the row says what cannot be.

    """
    params = dict(row.params.items())
    prune = params.pop(_PRUNE, 0.0)
    options = ",".join(f"{key}={value}" for key, value in params.items())
    try:
        model = load(
            f"{row.model}:{options}" if options else row.model,
            batch=row.batch,
            mode=row.mode,
            optimizer=row.optimizer or None,
            dtype="fp32" if row.dtype == "tf32" else row.dtype,
            prune=read_prune(_PRUNE, prune),
        )
        return analyze(
            model,
            row.target,
            runtime=row.runtime,
            dtype=row.dtype,
            inputs=row.inputs or INPUTS[0],
        )
    except PerfcError as error:
        msg = f"measured network {row.model} {row.params}: {error}"
        raise PerfcError(msg) from None


_FIGURES = ("mape", "gmae", "p90", "max", "bias")


def network_summary(found: NetworkFit) -> Iterator[str]:
    """Yield the lines to print: errors before, and of each third by the others."""
    yield (
        f"{found.target}: {found.rows} measured networks; errors before -> of each "
        "third of the settings, by the others"
    )
    yield f"{'':8s}" + "".join(f" {name.upper():>18s}" for name in _FIGURES)
    yield _line("time", found.times)
    if None not in found.memory:
        yield _line("memory", found.memory)
    for fit in found.fits:
        yield f"{fit.family!s:40s} {fit.values[SCALE]:6.2f} times, {fit.rows} networks"
    for name, value in found.fields.items():
        yield f"{name} = {value:.4g}"


def _line(what: str, errors: Both) -> str:
    cells = [
        " -> ".join(f"{getattr(error, name):.1%}" for error in errors)
        for name in _FIGURES
    ]
    return f"{what:8s}" + "".join(f" {cell:>18s}" for cell in cells)
