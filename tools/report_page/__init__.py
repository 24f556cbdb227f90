"""The page of reports: the answer, and all that stands behind it, drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.report_page.sections import reports_page
else:
    __getattr__ = door(
        __name__,
        {
            "sections": ("reports_page",),
        },
    )

__all__ = [
    "reports_page",
]
