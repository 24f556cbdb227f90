"""What measured rows of one machine say of its kernels: coefficients of a profile.

A profile has one entry for each family of kernels that it was fitted on: an op in one
dtype and phase, or one kind of it. A cost model that knows the names of an entry's
coefficients takes them in place of its shipped constants; one that does not is
corrected: `start_us` and `scale` times what it says (`pricing/calibrated.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from perfc.costmodels import machine

if TYPE_CHECKING:
    from perfc.costmodels.machine.family import Family
    from perfc.costmodels.machine.near_rows import NearRows
    from perfc.ir import Kernel

SAME_KERNELS: Mapping[str, str] = {"fp16": "bf16"}
"""Types that were not measured, and the type that takes the same kernels."""

START = "start_us"
SCALE = "scale"
"""Coefficients of a correction: microseconds added, and a factor."""

NEAR_ROWS = ", near "
"""Between the name of a model and those of the rows that correct it."""


def _values(value: Mapping[str, float]) -> Mapping[str, float]:
    return dict(value)


@attrs.frozen
class KernelFit:
    """What was fitted for one family on one machine.

    Attributes:
        family: Of which kernels.
        values: Coefficients by name.
        sigma_shared: Relative uncertainty that its kernels share: how far off they are
            on average, on rows that were not fitted.
        sigma_independent: Relative scatter of one kernel there.
        rows: How many rows were fitted.
        near: What the rows say of sizes near theirs; only of a family of all kinds.
        shipped: How much of what perfc's own rows of a CPU say is true here, 0 to 1;
            only of a family of all kinds that perfc has rows of.

    """

    family: Family
    values: Mapping[str, float] = attrs.field(converter=_values, hash=False)
    sigma_shared: float
    sigma_independent: float
    rows: int
    near: NearRows | None = None
    shipped: float = 0.0

    @property
    def is_correction(self) -> bool:
        """Whether any model is corrected by it."""
        return SCALE in self.values


@attrs.frozen
class KernelFits:
    """All families of one profile."""

    by_family: Mapping[Family, KernelFit] = attrs.field(
        factory=dict["Family", KernelFit], hash=False
    )

    def __bool__(self) -> bool:
        return bool(self.by_family)

    def of(self, kernel: Kernel) -> KernelFit | None:
        """Return the fit for a kernel: of its kind, or of all kinds of its op."""
        known = map(self.by_family.get, machine.family_of(kernel).wider)
        return next((fit for fit in known if fit is not None), None)

    def wholes(
        self, kernels: Sequence[Kernel]
    ) -> Iterator[tuple[KernelFit, list[int]]]:
        """Yield the fit of all kinds of each op that has one, and its kernels."""
        wholes = [machine.family_of(kernel).whole for kernel in kernels]
        for family in dict.fromkeys(wholes):
            fit = self.by_family.get(family)
            if fit is not None:
                yield fit, [r for r, whole in enumerate(wholes) if whole == family]


def fits_of(fits: tuple[KernelFit, ...]) -> KernelFits:
    """Index *fits* by family."""
    return KernelFits({fit.family: fit for fit in fits})
