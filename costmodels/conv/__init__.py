"""Convolutions, by the kernels that libraries take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.conv.conv import CONV, launches_winograd
    from perfc.costmodels.conv.simt import ConvParameters
else:
    __getattr__ = door(
        __name__,
        {
            "conv": ("CONV", "launches_winograd"),
            "simt": ("ConvParameters",),
        },
    )

__all__ = [
    "CONV",
    "ConvParameters",
    "launches_winograd",
]
