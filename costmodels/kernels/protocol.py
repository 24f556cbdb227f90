"""The cost-model interface: a table of kernel signatures in, arrays out."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels.signatures import Floats, Indices
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


OF_TARGET = SESSION, BOARD, ARCHITECTURE, CLOCK = (
    "session",
    "board",
    "architecture",
    "clock",
)
"""Why kernels of one op and math mode are off together on a target, in the order of
`Estimate.sigma_target`: its software and the day, the board of a chip, a chip without
rows, and the clock under a power cap."""

OF_BOARDS = [OF_TARGET.index(BOARD), OF_TARGET.index(ARCHITECTURE)]
"""Reasons that a board has not which was measured itself."""


def _sure(estimate: Estimate) -> Floats:
    return np.zeros((len(OF_TARGET), len(estimate.seconds)))


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
        sigma_target: Relative uncertainty by `OF_TARGET` that kernels of one op and
            math mode share on this target, shape (4, rows); pricing puts it in
            for perfc's own models.

    """

    __repr__ = brief

    seconds: Floats
    sigma_shared: Floats
    sigma_independent: Floats
    model: Sequence[str]
    provenance: Sequence[Provenance]
    sigma_target: Floats = attrs.Factory(_sure, takes_self=True)

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def sigma_common(self) -> Floats:
        """What each row shares with others, whatever the reason, shape (rows,)."""
        of_target = np.square(self.sigma_target).sum(axis=0)
        found: Floats = np.sqrt(np.square(self.sigma_shared) + of_target)
        return found

    @property
    def sigma(self) -> Floats:
        """All of each row's uncertainty, shape (rows,)."""
        found: Floats = np.hypot(self.sigma_common, self.sigma_independent)
        return found

    def take(self, rows: Indices) -> Estimate:
        """Return some of the rows."""
        chosen: list[int] = rows.tolist()
        return Estimate(
            self.seconds[rows],
            self.sigma_shared[rows],
            self.sigma_independent[rows],
            [self.model[row] for row in chosen],
            [self.provenance[row] for row in chosen],
            self.sigma_target[:, rows],
        )


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
