"""Coefficients of a device's kernels, family by family.

All comes from the rows to fit. Of a GPU first one factor for each op and type: what its
board and software differ by from those that perfc has seen, of which few rows say much;
then the coefficients and what near rows say; then the uncertainty, which is how far off
fits are that lack a third of the shapes, each third in turn, widened until nine in ten
of the left out are inside. The other rows are reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import Target, cost_models, price
from perfc.costmodels.kernels import CostModel, Floats
from perfc.costmodels.machine import SCALE, START, Family, KernelFit, fits_of
from perfc.costmodels.pricing import terms_of
from perfc.fitting.errors import Errors, errors_of
from perfc.fitting.least_squares import BELIEF, fit_terms
from perfc.fitting.near_gemms import gemm_fits
from perfc.fitting.near_rows import fit_near_rows
from perfc.fitting.observations import Observations
from perfc.fitting.scores import Z90
from perfc.fitting.shipped_rows import agreed_share, logs_of
from perfc.ir.support import counted
from perfc.measurements import fold_of

FEWEST = 5
"""Rows to fit below which a family keeps what perfc ships, but for a GPU's factor."""

FEWEST_OF_KIND = 4
"""Rows of one kind below which it keeps what all kinds of its op say."""

_BELIEF_OF_KIND = 1.0
"""Rows that all kinds of an op count as in the fit of one: more than what perfc ships,
for they ran on the machine at hand."""

_STIFFNESS = 0.05
"""Stiffness of a CPU's coefficients, see `least_squares.fit_terms`: against what perfc
ships, and of a kind's against that of all kinds. A GPU's correction has two, which rows
do tell."""

_OWN_OF_KIND = frozenset({"item_ns"})
"""What kinds differ in: what they do with each element."""

_OWN_OF_CALL = _OWN_OF_KIND | {"start_us"}
_CALLS = frozenset({"optimizer_step"})
"""Ops whose kinds are functions of Python's, which begin as they like. Other ops are
one function for all kinds, or begin alike but for what terms say."""

MOST, MOST_OF_KIND = 8.0, 30.0
"""Factors by which a coefficient may exceed what is known of it. That is what perfc
ships, for a kind's also that of all kinds: terms that look alike in the rows at hand
would else trade places."""

_FOLDS = 3
"""Parts of the shapes that are left out in turn, to see how far off the fit is."""

_LEAST_SIGMA, _LEVEL = 0.02, 0.9
"""Least sigma that is stated, and the share of rows that shall be inside."""

_MOST_SIGMA = 10.0
"""Largest sigma that a profile may state."""

_MOST_OFF = 1.5
"""Logarithm beyond which a row is not believed."""

_PAGE, _PAGES_OF = "page_us", "elementwise"
"""Coefficient of new pages, and the op whose rows tell: an operating system clears them
alike whatever is written to them, and of this op alone some rows are on new pages."""

_GEMM = "gemm"


@attrs.frozen
class FamilyFit:
    """What came of one family.

    Attributes:
        family: Which.
        fit: The coefficients; None where there were too few rows.
        fitted: Rows that were fitted, or could have been.
        before: Errors on the other rows with what perfc ships; None without any.
        after: The same with the coefficients.
        noise: Mean of how far off those rows themselves are, which no model gets
            below; NaN where rows do not say.

    """

    family: Family
    fit: KernelFit | None
    fitted: int
    before: Errors | None
    after: Errors | None
    noise: float


@attrs.frozen
class DeviceFit:
    """What came of all rows of a device.

    Attributes:
        families: Of all kinds together, by name.
        fits: All coefficients, of kinds too.

    """

    families: tuple[FamilyFit, ...]
    fits: tuple[KernelFit, ...]


def fit_device(seen: Observations, target: Target) -> DeviceFit:
    """Fit the rows of each family that are marked to be fitted.

    *target* has what was measured of the sheet's fields, and no fits.
    """
    models = cost_models()
    fits: list[KernelFit] = []
    pages: Mapping[str, float] = {}
    to_fit = seen.part(fitted=True)
    whole = [family.whole for family in to_fit.families]
    in_turn = sorted(set(whole), key=lambda each: (each.op != _PAGES_OF, each))
    for family in counted(in_turn, "kinds of kernels fitted"):
        rows = to_fit.take(_where(whole, family))
        found = _fits_of_family(family, rows, target, models, pages)
        fits += found
        if family.op == _PAGES_OF and found:
            pages = _pages(found[0])
    calibrated = attrs.evolve(target, fits=fits_of(tuple(fits)))
    whole = [family.whole for family in seen.families]
    reports = tuple(
        _report(family, seen.take(_where(whole, family)), target, calibrated, models)
        for family in counted(sorted(set(whole)), "kinds of kernels compared")
    )
    return DeviceFit(reports, tuple(fits))


def _pages(fit: KernelFit) -> Mapping[str, float]:
    return {_PAGE: fit.values[_PAGE]} if _PAGE in fit.values else {}


def _where(families: Sequence[Family], family: Family) -> NDArray[np.intp]:
    return np.array([i for i, f in enumerate(families) if f == family], dtype=np.intp)


def _fits_of_family(
    family: Family,
    rows: Observations,
    target: Target,
    models: Sequence[CostModel],
    believed: Mapping[str, float],
) -> list[KernelFit]:
    """Return the fits of a family and its kinds to *rows*, and how sure they are."""
    if (_pages_s(rows, target, models) <= 0).sum() < FEWEST:
        # A GPU's factor of an op and type of which there are few rows.
        if target.device.synchronous or not len(rows):
            return []
        scale = _scale_of(rows, target, models)
        values = {START: 0.0, SCALE: scale.factor}
        shared, own = max(scale.sigma, _LEAST_SIGMA), max(scale.own, _LEAST_SIGMA)
        return [KernelFit(family, values, shared, own, len(rows))]
    found = _fits(family, rows, target, models, believed)
    # Each row's seconds by a fit that lacks its shape, shape (rows,).
    # A shape that is alone has what perfc ships.
    folds = np.array([fold_of(row.op, row.params, _FOLDS) for row in rows.rows])
    apart_s = np.empty(len(rows))
    for fold in np.unique(folds):
        others = rows.take(np.flatnonzero(folds != fold))
        fits = _fits(family, others, target, models, believed)
        calibrated = attrs.evolve(target, fits=fits_of(tuple(fits.values())))
        left = rows.take(np.flatnonzero(folds == fold))
        apart_s[folds == fold] = _predicted_s(left, calibrated, models)
    inside = [kind.wider for kind in rows.families]
    return [
        _with_sigmas(fit, rows, apart_s, np.array([kind in wider for wider in inside]))
        for kind, fit in found.items()
    ]


def _fits(
    family: Family,
    rows: Observations,
    target: Target,
    models: Sequence[CostModel],
    believed: Mapping[str, float],
) -> dict[Family, KernelFit]:
    """Fit all kinds together; then each that has rows enough, starting from that.

    Then see what the rows say of sizes near theirs. What is not believed starts from
    what perfc ships.
    """
    new = _pages_s(rows, target, models) > 0
    held = rows.take(np.flatnonzero(~new))
    if not len(held):
        return {}
    if not target.device.synchronous:
        scale = _scale_of(held, target, models)
        if family.op == _GEMM:
            return _fits_of_gemms(rows, target, models, scale)
        believed = {START: 0.0, SCALE: scale.factor}
    # Fit the coefficients of all kinds, then of each, then what near rows say.
    found = {family: _fit(family, held, target, models, believed)}
    inside = [kind.wider for kind in held.families]
    narrower = {kind for wider in inside for kind in wider} - {family}
    for kind in sorted(narrower, key=lambda kind: (len(kind.wider), kind)):
        own = held.take(np.flatnonzero([kind in wider for wider in inside]))
        if len(own) >= FEWEST_OF_KIND:
            wider = next(found[f] for f in kind.wider[1:] if f in found)
            found[kind] = _fit(kind, own, target, models, wider.values)
    calibrated = attrs.evolve(target, fits=fits_of(tuple(found.values())))
    logs, noise = logs_of(held, calibrated, models)
    shipped, told = agreed_share(family, held.kernels.kernels, logs, target)
    near = fit_near_rows(held.kernels.kernels, logs - told, noise)
    found[family] = attrs.evolve(found[family], near=near, shipped=shipped)
    return _with_pages(found, rows.take(np.flatnonzero(new)), target, models)


def _pages_s(rows: Observations, target: Target, models: Sequence[CostModel]) -> Floats:
    """Return the seconds of new pages at 1 us each, shape (rows,).

    No other device than a CPU has any.
    """
    if not target.device.synchronous:
        return np.zeros(len(rows))
    terms = terms_of(rows.kernels, target, models)
    return terms.amounts_s[:, terms.names.index(_PAGE)]


def _with_pages(
    found: Mapping[Family, KernelFit],
    new: Observations,
    target: Target,
    models: Sequence[CostModel],
) -> dict[Family, KernelFit]:
    """Put in what a new page takes: the median of what rows that have some take longer.

    A hypervisor that takes free pages back makes some of them five times as long.
    """
    if not len(new):
        return dict(found)
    free = _with_values(found, {_PAGE: 0.0})
    calibrated = attrs.evolve(target, fits=fits_of(tuple(free.values())))
    rest_s = new.measured_s - _predicted_s(new, calibrated, models)
    page = float(np.median(rest_s / _pages_s(new, target, models)))
    return _with_values(found, {_PAGE: max(page, 0.0)})


def _with_values(
    found: Mapping[Family, KernelFit], values: Mapping[str, float]
) -> dict[Family, KernelFit]:
    return {
        family: attrs.evolve(fit, values={**fit.values, **values})
        for family, fit in found.items()
    }


def _fit(
    family: Family,
    rows: Observations,
    target: Target,
    models: Sequence[CostModel],
    believed: Mapping[str, float],
) -> KernelFit:
    of_kind = None if family == family.whole else family
    names, values = _coefficients(rows, target, models, believed, of_kind)
    coefficients = dict(zip(names, values.tolist(), strict=True))
    return KernelFit(family, coefficients, _LEAST_SIGMA, _LEAST_SIGMA, len(rows))


def _with_sigmas(
    fit: KernelFit, rows: Observations, apart_s: Floats, mine: NDArray[np.bool_]
) -> KernelFit:
    """Put in how far off the fits of other shapes are on the rows of a kind.

    By medians and the error of nine rows in ten: of a CPU some row is a thousand times
    as long as others, which something disturbed.
    """
    logs = np.log(apart_s[mine] / rows.measured_s[mine])
    off = float(np.median(logs))
    own = float(np.quantile(np.abs(logs - off), _LEVEL)) / Z90
    shared, own = max(abs(off), _LEAST_SIGMA), max(own, _LEAST_SIGMA)
    # One row more counts, as conformal prediction asks: the next may be farther off.
    level = min(1.0, _LEVEL * (len(logs) + 1) / len(logs))
    needed = float(np.quantile(np.abs(logs), level)) / Z90
    wider = max(needed / math.hypot(shared, own), 1.0)
    most = _MOST_SIGMA / max(shared, own)
    wider = min(wider, max(most, 1.0))
    return attrs.evolve(fit, sigma_shared=wider * shared, sigma_independent=wider * own)


def _coefficients(
    part: Observations,
    target: Target,
    models: Sequence[CostModel],
    believed: Mapping[str, float],
    kind: Family | None = None,
) -> tuple[tuple[str, ...], Floats]:
    """Return the terms of a family and their coefficients, or of one kind of it."""
    terms = terms_of(part.kernels, target, models)
    shipped = terms.coefficients
    named = zip(terms.names, shipped.tolist(), strict=True)
    before = np.array([believed.get(name, own) for name, own in named])
    if kind is None:
        known, most, belief = shipped, MOST, BELIEF
        free = frozenset[str]()
    else:
        known, most = np.maximum(shipped, before), MOST_OF_KIND
        belief = _BELIEF_OF_KIND
        free = _OWN_OF_CALL if kind.op in _CALLS else _OWN_OF_KIND
    stiffness = _STIFFNESS if target.device.synchronous else 0.0
    values = fit_terms(
        terms.amounts_s,
        part.measured_s,
        before,
        part.offset_s,
        np.where(known > 0, most * known, np.inf),
        belief,
        np.array([0.0 if name in free else stiffness for name in terms.names]),
    )
    return terms.names, values


@attrs.frozen
class _Scale:
    """The factor of an op and type on a GPU.

    Attributes:
        log: Logarithm of the factor.
        sigma: What is left of what was not known of it.
        own: What each kernel is off besides.

    """

    log: float
    sigma: float
    own: float

    @property
    def factor(self) -> float:
        """Number by which to multiply prices of models."""
        return math.exp(self.log)


def _scale_of(
    rows: Observations, target: Target, models: Sequence[CostModel]
) -> _Scale:
    """Return the factor that rows of one op and type say.

    The median of what they are off, as far as it is more likely to be the GPU's than
    chance: both are known by what models state.
    """
    modelled = price(rows.kernels.kernels, target, models)
    least_s = modelled.seconds * math.exp(-_MOST_OFF)
    kernel_s = np.maximum(rows.measured_s - rows.offset_s, least_s)
    logs = np.log(kernel_s / modelled.seconds)
    noise = modelled.sigma_independent * rows.measured_s / kernel_s
    common = float(np.mean(np.square(modelled.sigma_common)))
    chance = 1 / float(np.sum(1 / np.square(np.maximum(noise, _LEAST_SIGMA))))
    trust = common / (common + chance)
    log = trust * float(np.clip(np.median(logs), -_MOST_OFF, _MOST_OFF))
    own = float(modelled.sigma_independent.mean())
    return _Scale(log, math.sqrt(common * (1 - trust)), own)


def _fits_of_gemms(
    part: Observations,
    target: Target,
    models: Sequence[CostModel],
    scale: _Scale,
) -> dict[Family, KernelFit]:
    """Return the fits to a GPU's rows of GEMMs of one type: see `near_gemms`."""
    modelled = price(part.kernels.kernels, target, models)
    kernel_s = part.measured_s - part.offset_s
    logs = np.log(kernel_s / modelled.seconds) - scale.log
    own = float(modelled.sigma_independent.mean())
    sigmas = float(modelled.sigma_common.mean()), own
    noise = part.measured_s / kernel_s
    found = gemm_fits(part.kernels.kernels, logs, noise, sigmas)
    return {
        family: attrs.evolve(
            fit, values={**fit.values, SCALE: fit.values[SCALE] * scale.factor}
        )
        for family, fit in found.items()
    }


def _report(
    family: Family,
    rows: Observations,
    before: Target,
    after: Target,
    models: Sequence[CostModel],
) -> FamilyFit:
    test = rows.part(fitted=False)
    fit = after.fits.by_family.get(family)
    noise = test.noise[~np.isnan(test.noise)]
    return FamilyFit(
        family,
        fit,
        int(rows.fitted.sum()),
        _errors(test, before, models),
        _errors(test, after, models) if fit else None,
        float(noise.mean()) if len(noise) else float("nan"),
    )


def _errors(
    rows: Observations, target: Target, models: Sequence[CostModel]
) -> Errors | None:
    if not len(rows):
        return None
    return errors_of(_predicted_s(rows, target, models), rows.measured_s)


def _predicted_s(
    rows: Observations, target: Target, models: Sequence[CostModel]
) -> Floats:
    """Return the seconds that rows would measure."""
    predicted_s: Floats = rows.offset_s.copy()
    predicted_s += price(rows.kernels.kernels, target, models).seconds
    return predicted_s
