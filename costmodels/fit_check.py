"""Whether a profile has the coefficients by which this version prices a family.

A profile of another version may lack a term that was added since, whose time would then
be missing from every price, or have one that is gone. What is left was fitted without
the term, so that no shipped coefficient fits beside it: such a profile is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from perfc.costmodels.cpu import shipped_terms
from perfc.costmodels.kernel_fit import SCALE, START, KernelFit
from perfc.costmodels.product_parameters import GemmParameters
from perfc.costmodels.sheet_fields import quoted
from perfc.costmodels.target import Device

_CORRECTION = frozenset({START, SCALE})
_GEMM = frozenset(attrs.fields_dict(GemmParameters))


def coefficient_problems(fits: Iterable[KernelFit], device: Device) -> Iterator[str]:
    """Yield what the families of a profile of *device* lack, or have that is unknown.

    Parameters of products on a GPU may be absent: those that were not fitted are what
    perfc ships.
    """
    for fit in fits:
        needed = _CORRECTION
        if device.synchronous and not fit.is_correction:
            needed = frozenset(shipped_terms(fit.family))
        optional = _GEMM if fit.family.op == "gemm" else frozenset[str]()
        if lacking := needed - fit.values.keys():
            names = _listed(lacking)
            yield f"values of {fit.family} lack {names}; calibrate again"
        elif unknown := fit.values.keys() - needed - optional:
            names = _listed(unknown)
            yield f"values of {fit.family} have unknown {names}; calibrate again"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, sorted(names)))
