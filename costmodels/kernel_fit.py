"""What measured rows of one machine say of its kernels: coefficients of a profile.

A profile has one entry for each family of kernels that it was fitted on: an op in one
dtype and phase, or one kind of it. A cost model that knows the names of an entry's
coefficients takes them in place of its shipped constants; one that does not is
corrected: `start_us` and `scale` times what it says (`select.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from perfc.ir import Kernel

START, SCALE = "start_us", "scale"
"""Coefficients of a correction: microseconds added, and a factor."""

FORWARD = "forward"

SERIES = "series"
"""Kind of elementwise kernels that compute a series for each element."""

SERIES_KINDS = frozenset(
    {"exp", "log", "erf", "gelu", "sigmoid", "silu", "softplus", "tanh", "pow"}
    | {"sin", "cos", "log1p", "expm1", "mish", "elu", "selu", "gelu_backward"}
)


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
        return self, self.whole


def family_of(kernel: Kernel) -> Family:
    """Return the family that a kernel belongs to, its kind included."""
    params = kernel.params
    dtype = "tf32" if kernel.math == "tf32" else kernel.dtype
    phase = str(params.get("phase", FORWARD))
    return Family(kernel.op, dtype, phase, _kind(kernel))


def _kind(kernel: Kernel) -> str:
    """Return the kind that a kernel says, or what kind of product it is."""
    params = kernel.params
    if kernel.op == "embedding_bag":  # by what is done with the gradients of rows
        return str(params.get("optimizer", ""))
    if kernel.op != "gemm":
        return str(params.get("kind", ""))
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

    """

    family: Family
    values: Mapping[str, float] = attrs.field(converter=_values, hash=False)
    sigma_shared: float
    sigma_independent: float
    rows: int

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


def fits_of(fits: tuple[KernelFit, ...]) -> KernelFits:
    """Index *fits* by family."""
    return KernelFits({fit.family: fit for fit in fits})
