"""Kernels that are fitted together: an op in one dtype and phase, or one kind of it."""

from __future__ import annotations

import attrs

from perfc.ir import Kernel

FORWARD, BACKWARD = "forward", "backward"

SERIES = "series"
"""Kind of elementwise kernels that compute a series for each element."""

SERIES_KINDS = frozenset(
    {"exp", "log", "erf", "gelu", "sigmoid", "silu", "softplus", "tanh", "pow"}
    | {"sin", "cos", "log1p", "expm1", "mish", "elu", "selu", "gelu_backward"}
)


DOWN = "down"
"""Kind of reductions over the first axis: a result for each column."""


@attrs.frozen(order=True)
class Family:
    """Kernels that are fitted together.

    Attributes:
        op: Canonical name, as in measured rows.
        dtype: As in measured rows: `tf32` where GEMMs compute in it.
        phase: `forward`, `backward`, ...
        kind: Of an elementwise kernel, a reduction, a GEMM, the optimizer of a
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
    """Return the kind that a kernel says, or what kind of GEMM it is."""
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
