"""What a step would gain: without waits, on another host, op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.what_if.chunks import best_chunks, chunked_s
    from perfc.passes.what_if.faster_host import FasterHost
    from perfc.passes.what_if.host_waits import waits_for_inputs, waits_inside
    from perfc.passes.what_if.pin_copies import PinCopies
    from perfc.passes.what_if.remove_syncs import RemoveSyncs
    from perfc.passes.what_if.what_if import (
        WHAT_IF,
        HostSaving,
        OpSaving,
        Savings,
        SiteSaving,
        WhatIf,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "chunks": ("best_chunks", "chunked_s"),
            "faster_host": ("FasterHost",),
            "host_waits": ("waits_for_inputs", "waits_inside"),
            "pin_copies": ("PinCopies",),
            "remove_syncs": ("RemoveSyncs",),
            "what_if": (
                "HostSaving",
                "OpSaving",
                "Savings",
                "SiteSaving",
                "WHAT_IF",
                "WhatIf",
            ),
        },
    )

__all__ = [
    "WHAT_IF",
    "FasterHost",
    "HostSaving",
    "OpSaving",
    "PinCopies",
    "RemoveSyncs",
    "Savings",
    "SiteSaving",
    "WhatIf",
    "best_chunks",
    "chunked_s",
    "waits_for_inputs",
    "waits_inside",
]
