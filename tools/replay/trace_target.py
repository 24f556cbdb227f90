"""The target that a trace was measured on."""

from __future__ import annotations

from perfc.costmodels import Target, load_target, target_of_device
from perfc.ir import PerfcError
from perfc.traces import Recorded


def target_of_trace(recorded: Recorded, named: str | None, option: str) -> Target:
    """Return the target that is named, or else that of the trace's device.

    Args:
        recorded: The trace.
        named: What the user gave, None for nothing.
        option: The option that it is given with.

    """
    if named is not None:
        return load_target(named)
    trace = recorded.trace
    if not recorded.works:
        msg = f"{trace.file}: the device did nothing in it; there is nothing to predict"
        raise PerfcError(msg)
    found = target_of_device(trace.device)
    if found is None:
        device = f"its device is {trace.device!r}" if trace.device else "it names none"
        msg = f"{trace.file}: no target for its device ({device}); name one: {option} T"
        raise PerfcError(msg)
    return load_target(found)


def measured_on(recorded: Recorded) -> Target | None:
    """Return the target of the trace's device; None if perfc has none."""
    found = target_of_device(recorded.trace.device)
    return None if found is None else load_target(found)
