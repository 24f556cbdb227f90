"""`perfc quantize`: precision as a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.quantizing.quantizing import quantize
    from perfc.tools.quantizing.question import Precision
    from perfc.tools.quantizing.report import Quantization
else:
    __getattr__ = door(
        __name__,
        {
            "question": ("Precision",),
            "quantizing": ("quantize",),
            "report": ("Quantization",),
        },
    )

__all__ = [
    "Precision",
    "Quantization",
    "quantize",
]
