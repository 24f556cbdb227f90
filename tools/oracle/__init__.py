"""Oracles: a step asked again and again, under edits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.oracle.many_sizes import FEWEST
    from perfc.tools.oracle.many_targets import Found, found_together
    from perfc.tools.oracle.memory import Memory
    from perfc.tools.oracle.oracle import Oracle
    from perfc.tools.oracle.sensitivity import sensitivity_of
    from perfc.tools.oracle.setting import Setting
else:
    __getattr__ = door(
        __name__,
        {
            "many_sizes": ("FEWEST",),
            "many_targets": ("Found", "found_together"),
            "memory": ("Memory",),
            "oracle": ("Oracle",),
            "sensitivity": ("sensitivity_of",),
            "setting": ("Setting",),
        },
    )

__all__ = [
    "FEWEST",
    "Found",
    "Memory",
    "Oracle",
    "Setting",
    "found_together",
    "sensitivity_of",
]
