"""The page of reports: the answer, and all that stands behind it, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.report_page.report_page import report_page
else:
    __getattr__ = door(
        __name__,
        {
            "report_page": ("report_page",),
        },
    )

__all__ = [
    "report_page",
]
