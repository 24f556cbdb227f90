"""All that is shipped of GEMMs, from all measured rows; and GPUs left out."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.fitted_files import Network
from perfc.costmodels.gemm import (
    EIGHT_BITS,
    QUANTISED,
    SIMT_MODES,
    TENSOR_KERNELS,
    TF32,
    GemmParameters,
    is_wide,
)
from perfc.costmodels.kernels import Floats
from perfc.costmodels.machine import Family, KernelFit
from perfc.fitting.errors import Errors, errors_of
from perfc.fitting.near_gemms import gemm_factors, gemm_fits
from perfc.fitting.observations import LONG_EVENT_US
from training.gemm import (
    EIGHT_BITS_BOUNDS,
    OWN_BIASED_PARTS,
    OWN_BOUNDS,
    OWN_FITTED,
    SIMT_FITTED,
    SIMT_START,
    TENSOR_FITTED,
    TENSOR_START,
    WIDE_BIASED_PARTS,
    WIDE_FITTED,
    GemmRows,
    fit_gemm,
)
from training.gemm_residual import fit_residuals
from training.priced_rows import different
from training.samples import CALIBRATION, FITTED, TEST, Sample

BASIC = "bf16"
"""The type whose rows say the parameters on tensor cores; others are corrected."""

NOT_SHIPPED = Path(__file__).parents[1] / "corrections.toml"
"""Networks that are farther off than the formula on rows of another session or board or
on sizes of layers, as `GPU/type`: by `benchmarks/corrections.py`."""

_FEWEST_NETWORK = 2000
"""Rows below which a GPU and type have no network."""

_LEAST_SHARED = 0.05

_OWN_BELIEF = 0.3
"""How much kernels of their own are believed to be like the usual ones."""

_FEW, _DRAWS = 10, 5
"""Rows that tell of a GPU, and how often they are drawn."""


@attrs.frozen(eq=False)
class WithFew:
    """A GPU whose rows were left out of a fit, but for a few that correct its prices.

    Attributes:
        target: Its name.
        dtype: Of the rows.
        logs: ln(predicted / measured) of rows that only report, shape (rows,), by the
            draw of the few whose mean error is the median of five.
        units: A number each, the same for rows whose errors are alike.

    """

    target: str
    dtype: str
    logs: Floats
    units: NDArray[np.intp]


def fit_shipped_gemms(
    samples: Sequence[Sample],
) -> tuple[dict[str, GemmParameters], dict[tuple[str, str], Network]]:
    """Return parameters by their table, and networks by target and type.

    Networks are of all rows: how far off they are on others, `cross_fit` says.
    """
    tables = fit_parameters(samples)
    known = {
        (name, parts[0].key.dtype): (_joined(parts), tables["simt"])
        for name, parts in _by_target(_simt(samples)).items()
    }
    for name, sample in itertools.product(_by_target(_tensor(samples)), samples):
        if sample.key.target != name or not _is_gemm(sample, simt=False):
            continue
        rows = GemmRows.of(sample)
        if len(rows) >= _FEWEST_NETWORK:
            usual = tables.get(_own_table(sample), tables["tensor.all"])
            own = tables.get(_own_table(sample, sample.key.dtype), usual)
            known[name, sample.key.dtype] = rows, own
    return tables, dict(zip(known, fit_residuals([*known.values()]), strict=True))


def shipped(
    found: Mapping[tuple[str, str], Network], listed: Path = NOT_SHIPPED
) -> dict[tuple[str, str], Network]:
    """Return the networks but for those that are listed as not to be shipped."""
    left = tomllib.loads(listed.read_text(encoding="utf-8"))["not_shipped"]
    return {key: found[key] for key in found if "/".join(key) not in left}


def fit_parameters(samples: Sequence[Sample]) -> dict[str, GemmParameters]:
    """Return parameters by their table.

    A GPU without rows to fit has none of its own: those of all GPUs hold.
    """
    on_simt, on_tensor = _simt(samples), _tensor(samples)
    on_wide = _simt(samples, wide=True)
    shared = _with_sigmas(fit_tensor(on_tensor), on_tensor)
    tables = {
        "simt": _with_sigmas(fit_simt(on_simt), on_simt),
        "tensor.all": shared,
    }
    if on_wide:
        tables["simt_wide"] = _with_sigmas(fit_wide(on_wide, tables["simt"]), on_wide)
    for parts in _by_target(on_tensor).values():
        shown = shown_rows(parts)
        if any(len(rows) for rows in shown):
            own = fit_gemm(shown, shared, TENSOR_FITTED)
            tables[_own_table(parts[0])] = _with_sigmas(own, parts)
    for parts in _by_target(_tensor(samples, TF32)).values():
        usual = tables.get(_own_table(parts[0]), shared)
        for number, name in enumerate(TENSOR_KERNELS):
            mine = [_of_kernels(part, number) for part in parts]
            if name and any(map(len, mine)):
                tables[_own_table(parts[0], name)] = _fit_own(mine, usual)
    for name in (EIGHT_BITS, *QUANTISED):
        for parts in _by_target(_tensor(samples, name)).values():
            usual = tables.get(_own_table(parts[0]), shared)
            tables[_own_table(parts[0], name)] = _fit_eight_bits(parts, usual)
    return tables


def _fit_eight_bits(samples: Sequence[Sample], usual: GemmParameters) -> GemmParameters:
    """Return the parameters of GEMMs of 8 bits on a GPU, from those of 16.

    Some libraries cut no sums of theirs: what is nearer to the rows stays.
    """
    rows, bounds = shown_rows(samples), EIGHT_BITS_BOUNDS
    found = [
        fit_gemm(rows, start, OWN_FITTED, belief=_OWN_BELIEF, bounds=bounds)
        for start in (usual, attrs.evolve(usual, most_parts=1.0))
    ]
    return _with_sigmas(min(found, key=lambda p: _errors(rows, p).gmae), samples)


def _fit_own(samples: Sequence[Sample], usual: GemmParameters) -> GemmParameters:
    """Return the parameters of kernels that have their own, from those of others."""
    start = attrs.evolve(usual, biased_parts=OWN_BIASED_PARTS)
    found = fit_gemm(
        shown_rows(samples), start, OWN_FITTED, belief=_OWN_BELIEF, bounds=OWN_BOUNDS
    )
    return _with_sigmas(found, samples)


def _of_kernels(sample: Sample, number: int) -> Sample:
    """Return the rows of some of the kernels on tensor cores."""
    own = GemmRows.of(sample).gemms.own
    return sample.take(np.flatnonzero(own == number))


def _own_table(sample: Sample, kernels: str = "") -> str:
    name = f"{sample.target.device.architecture} {kernels}".strip()
    return f'tensor."{name}"'


def fit_simt(samples: Sequence[Sample]) -> GemmParameters:
    """Return the parameters without tensor cores that rows of some GPUs say."""
    return fit_gemm(shown_rows(_simt(samples)), SIMT_START, SIMT_FITTED)


def fit_wide(samples: Sequence[Sample], narrow: GemmParameters) -> GemmParameters:
    """Return the parameters that rows of SMs of 128 lanes say.

    Args:
        samples: GEMMs without tensor cores on such SMs.
        narrow: What rows of other SMs say, which the rest is.

    """
    start = attrs.evolve(narrow, biased_parts=WIDE_BIASED_PARTS)
    return fit_gemm(shown_rows(samples), start, WIDE_FITTED)


def fit_tensor(samples: Sequence[Sample]) -> GemmParameters:
    """Return the parameters on tensor cores that rows of some GPUs say."""
    return fit_gemm(shown_rows(_tensor(samples)), TENSOR_START, TENSOR_FITTED)


def with_few(
    samples: Sequence[Sample], without: Callable[[frozenset[str], str], GemmParameters]
) -> Iterator[WithFew]:
    """Yield each GPU with parameters of the others, corrected by a few of its rows.

    As `perfc calibrate --from` corrects them.

    Args:
        samples: Rows of all GPUs.
        without: From names of GPUs and a type to the parameters of the others.

    """
    for kind in (_simt(samples), _tensor(samples)):
        for name, parts in _by_target(kind).items():
            dtype = parts[0].key.dtype
            others = [sample for sample in kind if sample.key.target != name]
            stated = _with_sigmas(without(frozenset({name}), dtype), others)
            draws = [_few_logs(parts, stated, seed) for seed in range(_DRAWS)]
            draws.sort(key=lambda logs: float(np.abs(np.expm1(logs)).mean()))
            yield WithFew(name, dtype, draws[_DRAWS // 2], _units(parts))


def _units(parts: Sequence[Sample]) -> NDArray[np.intp]:
    """Return a number for each row to report, the same for those that err alike."""
    reported = [part.of(TEST) for part in parts]
    numbers = [different(rows) for rows in reported]
    begins = np.cumsum([0, *(len(rows) for rows in reported)])
    return np.concatenate([n + b for n, b in zip(numbers, begins, strict=False)])


def _errors(rows: Sequence[GemmRows], parameters: GemmParameters) -> Errors:
    found = errors_of(
        np.concatenate([part.predicted_s(parameters) for part in rows]),
        np.concatenate([part.measured_s for part in rows]),
    )
    assert found is not None  # samples are not empty
    return found


def _few_logs(parts: Sequence[Sample], parameters: GemmParameters, seed: int) -> Floats:
    """Return ln(predicted / measured) once a few rows to fit correct the prices."""
    fits = _fits_of(_drawn([_shown(part) for part in parts], seed), parameters)
    found: list[Floats] = []
    for sample in (part.of(TEST) for part in parts):
        kernel_s = GemmRows.of(sample).kernel_s(parameters)
        kernel_s *= gemm_factors(fits, sample.table.kernels)
        found.append(np.log(sample.timed_s(kernel_s) / sample.measured_s))
    return np.concatenate(found)


def _drawn(parts: Sequence[Sample], seed: int) -> list[Sample]:
    """Return a few of all rows of a GPU."""
    number = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    place = np.concatenate([np.arange(len(part)) for part in parts])
    drawn = np.random.default_rng(seed).permutation(len(number))[:_FEW]
    found = [
        part.take(place[drawn[number[drawn] == at]]) for at, part in enumerate(parts)
    ]
    return [part for part in found if len(part)]


def _fits_of(
    parts: Sequence[Sample], parameters: GemmParameters
) -> dict[Family, KernelFit]:
    """Return the fits to rows of a GPU, as `perfc calibrate` makes them."""
    rows = [GemmRows.of(part) for part in parts]
    measured_s = np.concatenate([part.measured_s for part in rows])
    kernel_s = measured_s - np.concatenate([part.before_s for part in rows])
    modelled_s = np.concatenate([part.kernel_s(parameters) for part in rows])
    return gemm_fits(
        [kernel for part in parts for kernel in part.table.kernels],
        np.log(kernel_s / modelled_s),
        measured_s / kernel_s,
        (parameters.sigma_shared, parameters.sigma_independent),
    )


def _joined(parts: Sequence[Sample]) -> GemmRows:
    """Return the rows of all GEMMs of a GPU without tensor cores."""
    return GemmRows.joined([GemmRows.of(part) for part in parts])


def _simt(samples: Sequence[Sample], *, wide: bool = False) -> list[Sample]:
    return [
        sample
        for sample in samples
        if _is_gemm(sample, simt=True) and is_wide(sample.target) == wide
    ]


def _tensor(samples: Sequence[Sample], dtype: str = BASIC) -> list[Sample]:
    return [
        sample
        for sample in samples
        if _is_gemm(sample, simt=False) and sample.key.dtype == dtype
    ]


def _is_gemm(sample: Sample, *, simt: bool) -> bool:
    if sample.key.op != "gemm" or not len(sample):
        return False
    return (str(sample.table.math[0]) in SIMT_MODES) == simt


def _by_target(samples: Sequence[Sample]) -> Mapping[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.key.target, []).append(sample)
    return found


def shown_rows(samples: Sequence[Sample], part: int = FITTED) -> list[GemmRows]:
    """Return the rows of a part that show a kernel of the architecture's own.

    Pascal's linear layers run Maxwell's.
    """
    found: list[GemmRows] = []
    for sample in samples:
        rows = GemmRows.of(_shown(sample, part))
        if sample.target.device.architecture == "Pascal":
            rows = rows.take(np.flatnonzero(rows.gemms.sizes[0] > 1))
        found.append(rows)
    return found


def _shown(sample: Sample, part: int = FITTED) -> Sample:
    """Return the rows of a part that show their kernel.

    Event pairs that are short say what the host takes.
    """
    rows = sample.of(part)
    if sample.key.timing != "event":
        return rows
    return rows.take(np.flatnonzero(rows.measured_s > LONG_EVENT_US * 1e-6))


def _with_sigmas(found: GemmParameters, samples: Sequence[Sample]) -> GemmParameters:
    """Return parameters with the errors of some GPUs on rows that were not fitted.

    GPUs without such rows say nothing. If none has any, the errors stay those of the
    parameters that the fit started from: of a GPU those of all of them.
    """
    apart = [sample for sample in samples if (sample.part == CALIBRATION).any()]
    if not apart:
        return found
    logs: list[Floats] = []
    for parts in _by_target(apart).values():
        rows = [GemmRows.of(sample.of(CALIBRATION)) for sample in parts]
        logs.append(
            np.concatenate(
                [np.log(part.predicted_s(found) / part.measured_s) for part in rows]
            )
        )
    shared = np.sqrt(np.mean([np.square(log.mean()) for log in logs]))
    own = np.sqrt(np.mean([log.var() for log in logs]))
    return attrs.evolve(
        found,
        sigma_shared=max(float(shared), _LEAST_SHARED),
        sigma_independent=float(own),
    )
