"""What the host takes around kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.measure.host.dispatch import dispatch_rows
    from perfc.measure.host.floors import host_us_of_an_op
    from perfc.measure.host.overheads import HOST_OP, SMALL_MODELS, OverheadRun
else:
    __getattr__ = door(
        __name__,
        {
            "dispatch": ("dispatch_rows",),
            "floors": ("host_us_of_an_op",),
            "overheads": ("HOST_OP", "OverheadRun", "SMALL_MODELS"),
        },
    )

__all__ = [
    "HOST_OP",
    "SMALL_MODELS",
    "OverheadRun",
    "dispatch_rows",
    "host_us_of_an_op",
]
