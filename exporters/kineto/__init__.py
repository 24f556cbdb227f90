"""The step as a trace in Kineto's format, for Perfetto and others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.exporters.kineto.exporter import KinetoTrace
    from perfc.exporters.kineto.rank import Lane, RankTrace, rank_traces
else:
    __getattr__ = door(
        __name__,
        {
            "exporter": ("KinetoTrace",),
            "rank": ("Lane", "RankTrace", "rank_traces"),
        },
    )

__all__ = [
    "KinetoTrace",
    "Lane",
    "RankTrace",
    "rank_traces",
]
