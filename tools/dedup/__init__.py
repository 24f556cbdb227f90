"""`perfc dedup`: lists that samples of a session repeat, looked up once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.dedup.measured import measured_stays
    from perfc.tools.dedup.question import DedupQuestion, dedup
    from perfc.tools.dedup.report import Deduplication
else:
    __getattr__ = door(
        __name__,
        {
            "question": ("DedupQuestion", "dedup"),
            "measured": ("measured_stays",),
            "report": ("Deduplication",),
        },
    )

__all__ = [
    "DedupQuestion",
    "Deduplication",
    "dedup",
    "measured_stays",
]
