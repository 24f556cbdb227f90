"""A profile from whole networks that were measured: `perfc.workloads/1`.

One factor for each op, type and phase of kernels, and one for the host's speed, so that
iterations take what they were measured to take, and what libraries hold of memory
besides what perfc counts. Factors stay near 1 where the rows say little of them. A host
of another speed makes kernels wait or be waited for, so that every row is analyzed with
hosts of several.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import load_target
from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import SCALE, START, Family, KernelFit, family_of
from perfc.fitting.errors import Errors, errors_of
from perfc.fitting.least_squares import fit_terms
from perfc.ir import PerfcError
from perfc.ir.choices import INPUTS
from perfc.measurements import TEST, WorkloadMeasurement
from perfc.passes.facts import SegmentKind
from perfc.tools.analysis import analyze
from perfc.tools.given import read_prune
from perfc.tools.models import load
from perfc.tools.reports import Report

FEWEST = 2
"""Rows to fit below which nothing can be told."""

MOST = 8.0
"""Largest factor."""

_STIFFNESS = 0.05
"""Weight of a factor of 2, in rows that are off by their whole time."""

_SPEEDS = (1.0, *(2.0 ** (step / 4) for step in range(-8, 9) if step))
"""Factors by which a host may be faster than its sheet says, the sheet itself first."""

_FOLDS = 3
_LEAST_SIGMA = 0.02
_MEASURED = ("lower-kernels{cudnn-tf32=false}",)
"""How `perfc measure` runs types but tf32: without it throughout."""

_PRUNE, _MIB = "prune", 2**20


Both: TypeAlias = "tuple[Errors | None, Errors | None]"
"""Errors without a profile and with one."""


@attrs.frozen
class NetworkFit:
    """What measured networks say of a device.

    Attributes:
        target: Its sheet.
        fits: A factor for each family of kernels.
        fields: Fields of the sheet: what libraries hold of memory, the host's speed.
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
        speed: By how much the host is faster than the sheet says.

    """

    families: tuple[Family, ...]
    amounts: Floats
    offset_s: Floats
    measured_s: Floats
    folds: NDArray[np.intp]
    memory: Floats
    speed: float

    def off(self, rows: NDArray[np.bool_]) -> float:
        """Return how far some rows are off on average, if they say all factors.

        A host of another speed is believed as little as any other factor.
        """
        told = self.times_s(self.factors(rows))[rows] / self.measured_s[rows]
        believed = _STIFFNESS * math.log2(self.speed) ** 2 / np.count_nonzero(rows)
        return float(np.abs(told - 1).mean() + believed)

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
    """Fit a profile to whole networks of one machine, those marked `test` left out."""
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
    whole = np.ones(len(fitted), dtype=bool)
    looks = _look(fitted)
    first, seen = looks[0], _best(looks, whole)
    held = _left_out(looks)
    library_mib = first.library_bytes(whole) / _MIB
    unfitted = first.times_s(np.ones(len(first.families)))
    fields = {"gpu.library_mib": library_mib} if library_mib else {}
    if seen.speed != 1:
        fields["host.speed"] = _speed(names[0]) * seen.speed
    return NetworkFit(
        target=names[0],
        fits=_fits(seen, seen.factors(whole), held),
        fields=fields,
        rows=len(fitted),
        times=(errors_of(unfitted, seen.measured_s), errors_of(held, seen.measured_s)),
        memory=_memory_errors(first),
    )


def _best(looks: Sequence[_Seen], rows: NDArray[np.bool_]) -> _Seen:
    return min(looks, key=lambda seen: seen.off(rows))


def _speed(target: str) -> float:
    speed = load_target(target).host.speed
    return 1.0 if speed is None else speed


def _left_out(looks: Sequence[_Seen]) -> Floats:
    """Return the time of each row by what the settings in the other thirds say."""
    first = looks[0]
    found = first.times_s(np.ones(len(first.families)))
    for fold in range(_FOLDS):
        others = first.folds != fold
        if others.any():
            seen = _best(looks, others)
            found = np.where(others, found, seen.times_s(seen.factors(others)))
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
        if seen.amounts[:, at].any()  # others count with hosts of other speeds only
    )


def _look(rows: Sequence[WorkloadMeasurement]) -> list[_Seen]:
    """Predict each row with each host: what takes how long, and memory."""
    parts: list[list[Mapping[Family, float]]] = [[] for _ in _SPEEDS]
    offsets: list[list[float]] = [[] for _ in _SPEEDS]
    memory: list[tuple[float, float]] = []
    for row in rows:
        for number, report in enumerate(_reports(row)):
            taken = _by_family(report)
            parts[number].append(taken)
            offsets[number].append(report.time_us * 1e-6 - sum(taken.values()))
            if not number:
                peak = float(report.memory["peak_bytes"])
                memory.append((peak, float(row.peak_memory_bytes or 0)))
    everything = (taken for each in parts for taken in each)
    families = tuple(sorted({family for taken in everything for family in taken}))
    return [
        _Seen(
            families,
            np.array([[taken.get(f, 0.0) for f in families] for taken in each]),
            np.array(offset_s),
            np.array([row.time_us * 1e-6 for row in rows]),
            np.array(list(_folds(rows)), dtype=np.intp),
            np.array(memory),
            speed,
        )
        for each, offset_s, speed in zip(parts, offsets, _SPEEDS, strict=True)
    ]


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


def _reports(row: WorkloadMeasurement) -> Iterator[Report]:
    """Predict what a row measured, with each host."""
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
        base = _speed(row.target)
        for speed in _SPEEDS:
            yield analyze(
                model,
                row.target,
                runtime=row.runtime,
                dtype=row.dtype,
                inputs=row.inputs or INPUTS[0],
                passes=() if row.dtype == "tf32" else _MEASURED,
                overrides={} if speed == 1 else {"host.speed": repr(base * speed)},
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
