"""MAD-Max's descriptions of models and strategies, read as its authors read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.reference.madmax import MadMaxStep
    from perfc.frontends.reference.madmax_strategy import read_strategy, strategies
else:
    __getattr__ = door(
        __name__,
        {
            "madmax": ("MadMaxStep",),
            "madmax_strategy": ("read_strategy", "strategies"),
        },
    )

__all__ = [
    "MadMaxStep",
    "read_strategy",
    "strategies",
]
