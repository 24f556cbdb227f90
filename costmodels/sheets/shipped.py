"""The GPU that was measured, of one that is imagined: as its own sheet has it.

What is only known of a GPU from its rows, as what a network says of its kernels, holds
for that GPU as it is. Of another amount of L2 or SMs, set by hand or by a profile, the
formulas say what changes; what they do not say stays.
"""

from __future__ import annotations

from perfc.costmodels.machine import Target, TargetError
from perfc.costmodels.sheets.catalog import is_path
from perfc.costmodels.sheets.sheet import load_target
from perfc.ir import UsageError


def nominal(target: Target) -> Target | None:
    """Return the GPU of the same name as shipped; None: it is that, or there is none.

    Of a sheet that is not shipped, the GPU without what was set by hand. Asked for with
    `Target.once`.
    """
    shipped = _shipped(target.device.name) or target.unset
    if shipped is None:
        return None
    same = shipped.device == target.device and shipped.watts == target.watts
    return None if same else shipped


def as_known(target: Target) -> Target:
    """Return the GPU that a target is imagined from; itself if it is not imagined."""
    return target.once(nominal) or target


def _shipped(name: str) -> Target | None:
    if is_path(name):
        return None
    try:
        return load_target(name)
    except (UsageError, TargetError):
        return None
