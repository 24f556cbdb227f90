"""What a board draws, as data: the numbers of a sheet's section `power`."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


def _frozen(joules: Mapping[str, float]) -> Mapping[str, float]:
    return dict(joules)


@attrs.frozen(kw_only=True)
class Power:
    """Watts and joules of a board at its boost clock."""

    cap_watts: float
    """What the driver holds the board to, on average over some tens of milliseconds."""
    burst_watts: float
    """What hardware holds it to until the driver reacts: kernels are timed at it."""
    idle_watts: float
    """Hot, with no kernel; no work takes them off."""
    busy_watts: float
    """Above that while all SMs issue instructions, before arithmetic is counted."""
    joules_per_byte: float
    """Joules of a byte that a kernel moves: memory, caches and the SMs that do it."""
    joules_per_flop: Mapping[str, float] = attrs.field(converter=_frozen, hash=False)
    """Joules of a flop by math mode; a mode that nobody has measured is absent."""
    least_share: float
    """The lowest SM clock over the boost clock."""
