"""Oracles: a step asked again and again, under edits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.tools.oracle.edits import (
        Apply,
        Bind,
        Dtype,
        Duration,
        Edit,
        Fuse,
        Place,
        Replace,
        Shard,
        Target,
    )
    from perfc.tools.oracle.oracle import Oracle
    from perfc.tools.oracle.sensitivity import sensitivity_of
else:
    __getattr__ = door(
        __name__,
        {
            "edits": (
                "Apply",
                "Bind",
                "Dtype",
                "Duration",
                "Edit",
                "Fuse",
                "Place",
                "Replace",
                "Shard",
                "Target",
            ),
            "oracle": ("Oracle",),
            "sensitivity": ("sensitivity_of",),
        },
    )

__all__ = [
    "Apply",
    "Bind",
    "Dtype",
    "Duration",
    "Edit",
    "Fuse",
    "Oracle",
    "Place",
    "Replace",
    "Shard",
    "Target",
    "sensitivity_of",
]
