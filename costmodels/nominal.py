"""The GPU that was measured, of one that is imagined: as perfc's own sheet has it.

What is only known of a GPU from its rows, as what a network says of its kernels, holds
for that GPU as it is. Of another amount of L2 or SMs, set by hand or by a profile, the
formulas say what changes; what they do not say stays.
"""

from __future__ import annotations

from perfc.costmodels.catalog import is_path
from perfc.costmodels.sheet import load_target
from perfc.costmodels.target import Target, TargetError
from perfc.ir import UsageError


def nominal(target: Target) -> Target | None:
    """Return the GPU of the same name as shipped; None: it is that, or there is none.

    Asked for with `Target.once`.
    """
    name = target.device.name
    if is_path(name):
        return None
    try:
        shipped = load_target(name)
    except (UsageError, TargetError):
        return None
    same = shipped.device == target.device and shipped.watts == target.watts
    return None if same else shipped
