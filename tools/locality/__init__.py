"""`perfc locality`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.locality.locality import (
        Question,
        localities,
        locality_json,
        locality_text,
        popularity_json,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "locality": (
                "Question",
                "localities",
                "locality_json",
                "locality_text",
                "popularity_json",
            ),
        },
    )

__all__ = [
    "Question",
    "localities",
    "locality_json",
    "locality_text",
    "popularity_json",
]
