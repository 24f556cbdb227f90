"""perfc's own cost models as their entries say: loaded when one is to price a kernel.

Which kernels a model wants, and before which others it is asked, stands here and in the
model; tests/costmodels/test_listed.py holds the two together. Models of other
distributions are loaded to be asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from perfc.costmodels.kernels import (
    CostModel,
    Estimate,
    KernelTable,
    OneSignature,
    Priced,
)
from perfc.costmodels.machine import COLLECTIVES, Target
from perfc.ir import COST_MODELS
from perfc.ir.support import load_plugin

_ClaimsOne: TypeAlias = Callable[[OneSignature, Target], bool]
_EstimateOne: TypeAlias = Callable[[OneSignature, Target], Priced | None]

MEASURED_NAME = "measured"
"""The model that is a table of what was measured, which nothing corrects."""


def _anywhere(_: Target) -> bool:
    return True


def _is_cpu(target: Target) -> bool:
    return target.device.synchronous


def _is_measured(target: Target) -> bool:
    return bool(target.measured)


def _has_no_tiers(one: OneSignature, target: Target) -> bool:
    if target.device.synchronous or one.op != "embedding_bag":
        return False
    tables = one.kernel.params.records("tables")
    return not any(table.reader("tier") for table in tables)


def _is_forward(one: OneSignature, target: Target) -> bool:
    return one.op == "embedding_bag" and one.text("phase") == "forward"


@attrs.frozen
class Entry:
    """What is known of a model before it is loaded.

    Attributes:
        priority: As of the model.
        ops: As of the model.
        applies: Targets that it claims kernels of.
        bounds: Kernels whose lower bound it says, whichever model prices them.
        may_exceed: Whether that can be above the bound of all of a kernel's work.
        intervals: Kernels of which it says which err alike.
        passes_over: Kernels of its ops that it does not claim, as can be told without
            it: it need not be loaded for them.

    """

    priority: int
    ops: frozenset[str] | None
    applies: Callable[[Target], bool] = _anywhere
    passes_over: _ClaimsOne | None = None
    bounds: frozenset[str] = frozenset()
    may_exceed: bool = False
    intervals: frozenset[str] = frozenset()


def _of(
    priority: int,
    ops: str,
    *,
    bounds: str = "",
    may_exceed: bool = False,
    intervals: str = "",
) -> Entry:
    return Entry(
        priority,
        frozenset(ops.split()),
        bounds=frozenset(bounds.split()),
        may_exceed=may_exceed,
        intervals=frozenset(intervals.split()),
    )


ENTRIES: Mapping[str, Entry] = {
    "attention": _of(50, "attention", bounds="attention", intervals="attention"),
    "batch-norm": _of(60, "batch_norm"),
    "collective": Entry(60, frozenset(COLLECTIVES)),
    "conv": _of(50, "conv2d conv3d", bounds="conv2d"),
    "cpu": Entry(70, None, _is_cpu),
    "embedding-bag": _of(60, "embedding_bag", bounds="embedding_bag"),
    "embedding-tiers": attrs.evolve(
        _of(
            72,
            "embedding_bag row_cache_fill tier_read tier_write tier_fill host_lookup "
            "pooled_copy server_lookup server_transfer server_request",
        ),
        passes_over=_has_no_tiers,
    ),
    "embedding-update": attrs.evolve(
        _of(61, "embedding_backward embedding_bag index_add linearize_indices"),
        passes_over=_is_forward,
    ),
    "gemm": _of(50, "gemm", intervals="gemm"),
    MEASURED_NAME: Entry(90, None, _is_measured),
    "memcpy": _of(60, "memcpy", bounds="memcpy", may_exceed=True),
    "multi-tensor": _of(50, "foreach optimizer_step"),
    "roofline": Entry(0, None),
    "streaming": _of(
        50,
        "batch_norm concat elementwise gather layer_norm memcpy pool quantize "
        "radix_sort reduction run_length scan softmax transpose triton_per triton_poi "
        "triton_red",
    ),
    "walk": _of(50, "ctc_walk topk"),
}
"""The models in perfc's own entry points, by name."""


class Owner(NamedTuple):
    """The model that says something of a kernel, and whether a bound may exceed."""

    model: str
    may_exceed: bool = False


BOUND_BY: Mapping[str, Owner] = {
    op: Owner(name, entry.may_exceed)
    for name, entry in ENTRIES.items()
    for op in entry.bounds
}
"""Who says the lower bound of a kernel."""

INTERVALS_BY: Mapping[str, Owner] = {
    op: Owner(name) for name, entry in ENTRIES.items() for op in entry.intervals
}
"""Who says which kernels of an op err alike."""


@attrs.define(eq=False)
class ListedModel:
    """A model that is loaded when it is asked, and answers as that does.

    Attributes:
        name: Name of its entry point.
        priority: As of the model.
        ops: As of the model.
        applies: Targets that it claims kernels of.
        passes_over: Kernels that it does not claim, as can be told without it.

    """

    name: str
    priority: int
    ops: frozenset[str] | None
    applies: Callable[[Target], bool]
    passes_over: _ClaimsOne | None = None
    _loaded: CostModel | None = attrs.field(default=None, init=False)

    @property
    def model(self) -> CostModel:
        """The model itself."""
        if self._loaded is None:
            self._loaded = cast("CostModel", load_plugin(COST_MODELS, self.name))
        return self._loaded

    def claims(self, kernels: KernelTable, target: Target) -> NDArray[np.bool_]:
        """Claim what the model does."""
        if not self.applies(target):
            return np.zeros(len(kernels), dtype=np.bool_)
        return self.model.claims(kernels, target)

    def estimate(self, kernels: KernelTable, target: Target) -> Estimate:
        """Price the rows as the model does."""
        return self.model.estimate(kernels, target)

    def claims_one(self, one: OneSignature, target: Target) -> bool:
        """Claim what the model does; of one that prices tables only, all."""
        if not self.applies(target):
            return False
        if self.passes_over is not None and self.passes_over(one, target):
            return False
        claims: _ClaimsOne | None = getattr(self.model, "claims_one", None)
        return claims is None or claims(one, target)

    def estimate_one(self, one: OneSignature, target: Target) -> Priced | None:
        """Price a kernel as the model does; None: a table has to."""
        estimate: _EstimateOne | None = getattr(self.model, "estimate_one", None)
        return None if estimate is None else estimate(one, target)


@functools.cache
def listed(name: str) -> ListedModel:
    """Return one of perfc's own models, by the name of its entry point."""
    entry = ENTRIES[name]
    return ListedModel(
        name, entry.priority, entry.ops, entry.applies, entry.passes_over
    )
