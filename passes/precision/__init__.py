"""The types that a model computes in: converted, and cast as autocast does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.precision.autocast import LOW_DTYPES, casts_first
    from perfc.passes.precision.convert_dtype import ConvertDtype, convert
    from perfc.passes.precision.convert_part import PLAIN_FLOATS
else:
    __getattr__ = door(
        __name__,
        {
            "autocast": ("LOW_DTYPES", "casts_first"),
            "convert_dtype": ("ConvertDtype", "convert"),
            "convert_part": ("PLAIN_FLOATS",),
        },
    )

__all__ = [
    "LOW_DTYPES",
    "PLAIN_FLOATS",
    "ConvertDtype",
    "casts_first",
    "convert",
]
