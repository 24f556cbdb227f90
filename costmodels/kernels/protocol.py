"""The cost-model interface: a table of kernel signatures in, arrays out."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels.signatures import Floats
from perfc.costmodels.kernels.table import KernelTable
from perfc.costmodels.machine import Target
from perfc.ir.support import brief

SOFTWARE = "software"
"""Parameter of a kernel: the source of its row, which says who replayed the graph."""


class Provenance(enum.Enum):
    """Sources of a number, best first."""

    MEASURED = "measured"
    FITTED = "fitted"
    ANALYTIC = "analytic"
    ASSUMED = "assumed"


@attrs.frozen(eq=False)
class Estimate:
    """What one model says of a table, row by row.

    Attributes:
        seconds: Predicted duration on an idle device.
        sigma_shared: Relative uncertainty (standard deviation of the logarithm)
            common to all kernels of this model on this target: an efficiency
            that is wrong for one is wrong for all.
        sigma_independent: Relative uncertainty of each kernel on its own.
        model: Name of the model, row by row.
        provenance: Where the number comes from, row by row.

    """

    __repr__ = brief

    seconds: Floats
    sigma_shared: Floats
    sigma_independent: Floats
    model: Sequence[str]
    provenance: Sequence[Provenance]

    def __len__(self) -> int:
        return len(self.seconds)


class Priced(NamedTuple):
    """What a model says of one kernel; as `Estimate`."""

    seconds: float
    sigma_shared: float
    sigma_independent: float
    provenance: Provenance


def uniform_estimate(
    seconds: Floats,
    *,
    model: str,
    provenance: Provenance,
    sigma_shared: float,
    sigma_independent: float,
) -> Estimate:
    """Make an estimate whose uncertainty is the same for every row."""
    rows = len(seconds)
    return Estimate(
        seconds,
        np.full(rows, sigma_shared),
        np.full(rows, sigma_independent),
        [model] * rows,
        [provenance] * rows,
    )


class CostModel(Protocol):
    """Anything that can price kernels. Stateless; register an instance.

    Models are asked in order of falling priority; each prices the rows that it
    claims and nobody before it did.
    """

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def priority(self) -> int:
        """Higher is asked first; the roofline fallback has 0."""
        ...

    @property
    def ops(self) -> frozenset[str] | None:
        """Canonical kernel names it may claim; None for any."""
        ...

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Return which rows it prices. Cheap."""
        ...

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price every row (all claimed)."""
        ...
