"""The report as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.exporters.html.page import HtmlPage
else:
    __getattr__ = door(
        __name__,
        {
            "page": ("HtmlPage",),
        },
    )

__all__ = [
    "HtmlPage",
]
