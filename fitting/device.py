"""Coefficients of a device's kernels, family by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels import (
    CostModel,
    Family,
    KernelFit,
    Target,
    cost_models,
    fits_of,
    price,
    terms_of,
)
from perfc.fitting.errors import Errors, errors_of
from perfc.fitting.least_squares import BELIEF, fit_terms
from perfc.fitting.near_products import product_fits
from perfc.fitting.near_rows import fit_near_rows
from perfc.fitting.observations import Observations
from perfc.fitting.shipped_rows import agreed_share, logs_of

Floats: TypeAlias = NDArray[np.float64]

FEWEST = 5
"""Rows to fit below which a family keeps what perfc ships."""

FEWEST_OF_KIND = 4
"""The same of one kind: it starts from what all kinds of its op say."""

_BELIEF_OF_KIND = 1.0
"""Rows that all kinds of an op count as in the fit of one: more than what perfc ships,
for they ran on the machine at hand."""

_STIFFNESS = 0.05
"""Of a CPU's coefficient against what perfc ships, and of a kind's against that of all
kinds: see `least_squares.fit_terms`. A GPU's correction has two, which rows do tell."""

_OWN_OF_KIND = frozenset({"item_ns"})
"""What kinds differ in: what they do with each element."""

_OWN_OF_CALL = _OWN_OF_KIND | {"start_us"}
_CALLS = frozenset({"optimizer_step"})
"""Ops whose kinds are functions of Python's, which begin as they like. Other ops are
one function for all kinds, or begin alike but for what terms say."""

MOST, MOST_OF_KIND = 8.0, 30.0
"""By how much a coefficient may exceed what perfc ships, and a kind's that or that of
all kinds: terms that look alike in the rows at hand would else trade places."""

_FEWEST_TESTS = 5
"""Rows to report below which the fitted ones say how far the fit is off, too."""

_LEAST_SIGMA = 0.02

_PAGE, _PAGES_OF = "page_us", "elementwise"
"""Coefficient of new pages, and the op whose rows tell: an operating system clears them
alike whatever is written to them, and of this op alone some rows are on new pages."""

_PRODUCT = "gemm"


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
    whole = [family.whole for family in seen.families]
    for family in sorted(set(whole), key=lambda each: (each.op != _PAGES_OF, each)):
        rows = seen.take(_where(whole, family))
        found = _fits_of_family(family, rows, target, models, pages)
        fits += found
        if family.op == _PAGES_OF and found:
            pages = _pages(found[0])
    calibrated = attrs.evolve(target, fits=fits_of(tuple(fits)))
    reports = tuple(
        _report(family, seen.take(_where(whole, family)), target, calibrated, models)
        for family in sorted(set(whole))
    )
    return DeviceFit(reports, tuple(fits))


def _pages(fit: KernelFit) -> Mapping[str, float]:
    """Return what a new page takes, if the fit says so, for all that make pages new."""
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
    """Fit all kinds together; then each that has rows enough, starting from that.

    Then see what the rows say of sizes near theirs, and how far off all that is. What
    is not believed starts from what perfc ships.
    """
    new = _pages_s(rows, target, models) > 0
    held = rows.take(np.flatnonzero(~new))
    if held.fitted.sum() < FEWEST:
        return []
    inside = [kind.wider for kind in rows.families]
    if family.op == _PRODUCT and not target.device.synchronous:
        found = _fits_of_products(rows.part(fitted=True), target, models)
    else:
        found = _fits_of_kinds(family, held, target, models, believed)
        found = _with_pages(found, rows.take(np.flatnonzero(new)), target, models)
    fits = fits_of(tuple(found.values()))
    calibrated = attrs.evolve(target, fits=fits)
    return [
        _with_sigmas(
            fit,
            rows.take(np.flatnonzero([kind in wider for wider in inside])),
            calibrated,
            models,
        )
        for kind, fit in found.items()
    ]


def _fits_of_kinds(
    family: Family,
    rows: Observations,
    target: Target,
    models: Sequence[CostModel],
    believed: Mapping[str, float],
) -> dict[Family, KernelFit]:
    """Fit the coefficients of all kinds, then of each, then what near rows say."""
    found = {family: _fit(family, rows, target, models, believed)}
    inside = [kind.wider for kind in rows.families]
    narrower = {kind for wider in inside for kind in wider} - {family}
    for kind in sorted(narrower, key=lambda kind: (len(kind.wider), kind)):
        own = rows.take(np.flatnonzero([kind in wider for wider in inside]))
        if own.fitted.sum() >= FEWEST_OF_KIND:
            wider = next(found[f] for f in kind.wider[1:] if f in found)
            found[kind] = _fit(kind, own, target, models, wider.values)
    found[family] = _with_near_rows(found, family, rows, target, models)
    return found


def _pages_s(rows: Observations, target: Target, models: Sequence[CostModel]) -> Floats:
    """Return what new pages take at 1 us each, shape (rows,).

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
    part = new.part(fitted=True)
    if not len(part):
        return dict(found)
    free = _with_values(found, {_PAGE: 0.0})
    calibrated = attrs.evolve(target, fits=fits_of(tuple(free.values())))
    rest_s = part.measured_s - part.offset_s
    rest_s -= price(part.kernels.kernels, calibrated, models).seconds
    page = float(np.median(rest_s / _pages_s(part, target, models)))
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
    part = rows.part(fitted=True)
    of_kind = None if family == family.whole else family
    names, values = _coefficients(part, target, models, believed, of_kind)
    coefficients = dict(zip(names, values.tolist(), strict=True))
    return KernelFit(family, coefficients, _LEAST_SIGMA, _LEAST_SIGMA, len(part))


def _with_near_rows(
    found: Mapping[Family, KernelFit],
    family: Family,
    rows: Observations,
    target: Target,
    models: Sequence[CostModel],
) -> KernelFit:
    part = rows.part(fitted=True)
    calibrated = attrs.evolve(target, fits=fits_of(tuple(found.values())))
    logs, noise = logs_of(part, calibrated, models)
    shipped, told = agreed_share(family, part.kernels.kernels, logs, target)
    near = fit_near_rows(part.kernels.kernels, logs - told, noise)
    return attrs.evolve(found[family], near=near, shipped=shipped)


def _with_sigmas(
    fit: KernelFit, rows: Observations, target: Target, models: Sequence[CostModel]
) -> KernelFit:
    """Put in how far off the held-out rows are, all rows where those are few."""
    test = rows.part(fitted=False)
    errors = _errors(test if len(test) >= _FEWEST_TESTS else rows, target, models)
    if errors is None:
        return fit
    return attrs.evolve(
        fit,
        sigma_shared=max(abs(errors.log_mean), _LEAST_SIGMA),
        sigma_independent=max(errors.log_spread, _LEAST_SIGMA),
    )


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


def _fits_of_products(
    part: Observations, target: Target, models: Sequence[CostModel]
) -> dict[Family, KernelFit]:
    """Return what rows of products of one type on a GPU say: see `near_products`."""
    modelled = price(part.kernels.kernels, target, models)
    kernel_s = part.measured_s - part.offset_s
    logs = np.log(kernel_s / modelled.seconds)
    own = float(modelled.sigma_independent.mean())
    sigmas = float(modelled.sigma_shared.mean()), own
    noise = part.measured_s / kernel_s
    return product_fits(part.kernels.kernels, logs, noise, sigmas)


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
    predicted = price(rows.kernels.kernels, target, models).seconds
    return errors_of(rows.offset_s + predicted, rows.measured_s)
