"""Whether a device multiplies in a type."""

from __future__ import annotations

from perfc.costmodels import Target
from perfc.ir.support import UnsupportedModelError
from perfc.passes.precision.stored_types import LINEAR_TYPES, LinearType

_BLACKWELL = 10
"""Major compute capability from which on tensor cores scale blocks of 16 and 32."""


def check_rate(dtype: LinearType, target: Target) -> None:
    """Refuse a type that a target does not multiply in."""
    rates = target.device.flops_per_s
    wanted = dtype.rate or "fp16"
    lacks = wanted not in rates
    if not lacks and dtype.newest:
        major = target.device.compute_capability.partition(".")[0]
        lacks = not (major.isdigit() and int(major) >= _BLACKWELL)
    if not lacks:
        return
    has = [
        name
        for name, one in LINEAR_TYPES.items()
        if (one.rate or "fp16") in rates and not one.newest
    ]
    what = f"scaled blocks of {dtype.block}" if dtype.newest else f"{wanted} GEMMs"
    msg = (
        f"{target.name} has no {what}, which {dtype.name} needs; it has "
        f"{', '.join(has)}"
    )
    raise UnsupportedModelError(msg)
