"""`torch.export` archives, read without torch: a zip file with JSON in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.pt2.frontend import Pt2Frontend, read_description
else:
    __getattr__ = door(
        __name__,
        {
            "frontend": ("Pt2Frontend", "read_description"),
        },
    )

__all__ = [
    "Pt2Frontend",
    "read_description",
]
