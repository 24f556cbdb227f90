"""How much of a time rests on constants that were chosen, or read off one case."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perfc.costmodels import Provenance, Target
from perfc.costmodels.constants import constants
from perfc.ir import Kernel

WEAK_KINDS = ("assumed", "single")
"""Kinds of constants that no rows hold, weakest first."""

FILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "attention": ("attention",),
        "conv": ("conv",),
        "cpu": ("cpu",),
        "embedding-bag": ("embedding", "streaming"),
        "embedding-tiers": ("embedding", "tiers"),
        "embedding-update": ("embedding", "streaming"),
        "memcpy": ("memcpy",),
        "multi-tensor": ("multi_tensor",),
        "roofline": ("roofline",),
        "streaming": ("streaming",),
        "walk": ("walk",),
    }
)
"""Files of constants that set times, by cost model."""

_HELD_BY_ROWS = frozenset({Provenance.MEASURED, Provenance.FITTED})


def weakest_constant(
    kernel: Kernel, model: str, provenance: Provenance, target: Target
) -> str:
    """Return the weakest kind of the constants that set a kernel's time.

    A price that was measured, or is of a model that was fitted on the target, rests on
    rows: its constants had their values when it was fitted.

    Args:
        kernel: Its signature.
        model: The cost model that priced it.
        provenance: Of the price.
        target: Where it runs.

    Returns:
        One of `WEAK_KINDS`; empty if there is no such constant.

    """
    if provenance in _HELD_BY_ROWS:
        return ""
    words, work = target.device.words, kernel.work
    moved = max(work.bytes_read, work.bytes_written)
    own = {"op": kernel.op, "math": kernel.math, "bytes": moved}

    def of(name: str) -> object:
        return own[name] if name in own else kernel.params.get(name)

    kinds = {
        constant.kind
        for file in FILES.get(model, ())
        for constant in constants(file)
        if constant.sets_time_of(model, of) and constant.part(words) is not None
    }
    return next((kind for kind in WEAK_KINDS if kind in kinds), "")
