"""`perfc diff`: why one report is slower than another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.diffs.difference import Diff, diff, diffs_of
    from perfc.tools.diffs.pages import FORMATS
    from perfc.tools.diffs.waterfall import BY
else:
    __getattr__ = door(
        __name__,
        {
            "difference": ("Diff", "diff", "diffs_of"),
            "pages": ("FORMATS",),
            "waterfall": ("BY",),
        },
    )

__all__ = ["BY", "FORMATS", "Diff", "diff", "diffs_of"]
