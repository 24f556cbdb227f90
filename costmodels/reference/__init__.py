"""Models of others, reproduced to the digit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.reference.madmax import (
        MadMaxModel,
        MadMaxSystem,
        madmax_model,
        madmax_system,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "madmax": ("MadMaxModel", "MadMaxSystem", "madmax_model", "madmax_system"),
        },
    )

__all__ = [
    "MadMaxModel",
    "MadMaxSystem",
    "madmax_model",
    "madmax_system",
]
