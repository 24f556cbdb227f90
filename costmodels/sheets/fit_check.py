"""Whether a profile has the coefficients by which this version prices a family.

A profile of another version may lack a term that was added since, whose time would then
be missing from every price, or have one that is gone. What is left was fitted without
the term, so that no shipped coefficient fits beside it: such a profile is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfc.costmodels import cpu
from perfc.costmodels.machine import SCALE, START, Device, KernelFit
from perfc.costmodels.sheets.sheet_fields import quoted

_CORRECTION = frozenset({START, SCALE})


def coefficient_problems(fits: Iterable[KernelFit], device: Device) -> Iterator[str]:
    """Yield problems of families' values on *device*: lacking ones, or unknown ones."""
    for fit in fits:
        needed = _CORRECTION
        if device.synchronous and not fit.is_correction:
            needed = frozenset(cpu.shipped_terms(fit.family))
        if lacking := needed - fit.values.keys():
            names = _listed(lacking)
            yield f"values of {fit.family} lack {names}; calibrate again"
        elif unknown := fit.values.keys() - needed:
            names = _listed(unknown)
            yield f"values of {fit.family} have unknown {names}; calibrate again"
        shipped = cpu.shipped_rows() if fit.shipped and device.synchronous else ()
        if fit.shipped and fit.family not in shipped:
            yield f"shipped of {fit.family}: perfc has no such rows; calibrate again"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, sorted(names)))
