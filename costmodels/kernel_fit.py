"""What measured rows of one machine say of its kernels: coefficients of a profile.

A profile has one entry for each family of kernels that it was fitted on: an op in one
dtype and phase, or one kind of it. A cost model that knows the names of an entry's
coefficients takes them in place of its shipped constants; one that does not is
corrected: `start_us` and `scale` times what it says (`select.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.near_rows import NearRows
from perfc.ir import Kernel

START, SCALE = "start_us", "scale"
"""Coefficients of a correction: microseconds added, and a factor."""

FORWARD, BACKWARD = "forward", "backward"

SERIES = "series"
"""Kind of elementwise kernels that compute a series for each element."""

SERIES_KINDS = frozenset(
    {"exp", "log", "erf", "gelu", "sigmoid", "silu", "softplus", "tanh", "pow"}
    | {"sin", "cos", "log1p", "expm1", "mish", "elu", "selu", "gelu_backward"}
)


DOWN = "down"
"""Kind of reductions over the first axis: a result for each column."""


def _values(value: Mapping[str, float]) -> Mapping[str, float]:
    return dict(value)


@attrs.frozen(order=True)
class Family:
    """Kernels that are fitted together.

    Attributes:
        op: Canonical name, as in measured rows.
        dtype: As in measured rows: `tf32` where products compute in it.
        phase: `forward`, `backward`, ...
        kind: Of an elementwise kernel, a reduction, a product, the optimizer of a
            step or of updated rows; empty for all.

    """

    op: str
    dtype: str
    phase: str = FORWARD
    kind: str = ""

    def __str__(self) -> str:
        phase = "" if self.phase == FORWARD else self.phase
        return " ".join(
            part for part in (self.op, self.kind, phase, self.dtype) if part
        )

    @property
    def whole(self) -> Family:
        """The family of all kinds."""
        return attrs.evolve(self, kind="")

    @property
    def wider(self) -> tuple[Family, ...]:
        """The families that it is part of, the narrowest first, itself before."""
        if self.kind in SERIES_KINDS:
            return self, attrs.evolve(self, kind=SERIES), self.whole
        if self.kind.endswith(f" {DOWN}"):
            return self, attrs.evolve(self, kind=DOWN), self.whole
        return self, self.whole


def family_of(kernel: Kernel) -> Family:
    """Return the family that a kernel belongs to, its kind included."""
    params = kernel.params
    dtype = "tf32" if kernel.math == "tf32" else kernel.dtype
    kind, phase = _kind(kernel), str(params.get("phase", FORWARD))
    if kind == BACKWARD:
        kind, phase = "", BACKWARD
    return Family(kernel.op, dtype, phase, kind)


def is_down(kernel: Kernel) -> bool:
    """Whether it reduces columns: elements of a single result lie in one, though."""
    params = kernel.params
    single = params.get("rows") == 1
    return kernel.op == "reduction" and params.get("axis") == 0 and not single


def _kind(kernel: Kernel) -> str:
    """Return the kind that a kernel says, or what kind of product it is."""
    params = kernel.params
    if kernel.op == "embedding_bag":  # by what is done with the gradients of rows
        none = "dense" if params.get("phase") == BACKWARD else ""
        return str(params.get("optimizer", none))
    kind = str(params.get("kind", ""))
    if is_down(kernel):
        return f"{kind} {DOWN}"
    if kernel.op != "gemm":
        return kind
    if params.get("b", 1) != 1:
        return "batched"
    return "vector" if 1 in (params.get("m"), params.get("n")) else "matrix"


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

    """

    family: Family
    values: Mapping[str, float] = attrs.field(converter=_values, hash=False)
    sigma_shared: float
    sigma_independent: float
    rows: int
    near: NearRows | None = None

    @property
    def is_correction(self) -> bool:
        """Whether any model is corrected by it."""
        return SCALE in self.values


@attrs.frozen
class KernelFits:
    """All families of one profile."""

    by_family: Mapping[Family, KernelFit] = attrs.field(
        factory=dict[Family, KernelFit], hash=False
    )

    def __bool__(self) -> bool:
        return bool(self.by_family)

    def of(self, kernel: Kernel) -> KernelFit | None:
        """Return the fit for a kernel: of its kind, or of all kinds of its op."""
        known = map(self.by_family.get, family_of(kernel).wider)
        return next((fit for fit in known if fit is not None), None)

    def log_factors(self, kernels: Sequence[Kernel]) -> NDArray[np.float64]:
        """Return ln(measured / modelled) as rows near each kernel have it."""
        found = np.zeros(len(kernels))
        for near, rows in self._near(kernels):
            found[rows] = near.log_factor([kernels[row] for row in rows])
        return found

    def near_names(self, kernels: Sequence[Kernel]) -> list[str]:
        """Return the rows that each kernel lies between; nothing far from all."""
        found = [""] * len(kernels)
        for near, rows in self._near(kernels):
            names = near.names([kernels[row] for row in rows])
            for row, name in zip(rows, names, strict=True):
                found[row] = name
        return found

    def _near(self, kernels: Sequence[Kernel]) -> Iterator[tuple[NearRows, list[int]]]:
        """Yield the rows of each family that has some, and its kernels."""
        wholes = [family_of(kernel).whole for kernel in kernels]
        for family in dict.fromkeys(wholes):
            fit = self.by_family.get(family)
            if fit is not None and fit.near is not None:
                yield (
                    fit.near,
                    [row for row, whole in enumerate(wholes) if whole == family],
                )


def fits_of(fits: tuple[KernelFit, ...]) -> KernelFits:
    """Index *fits* by family."""
    return KernelFits({fit.family: fit for fit in fits})
