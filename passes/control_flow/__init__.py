"""Branches, loops and sequences, resolved before anything is lowered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.control_flow.fuse_scans import FuseScans
    from perfc.passes.control_flow.resolve_control_flow import (
        ResolveControlFlow,
        has_control_flow,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "fuse_scans": ("FuseScans",),
            "resolve_control_flow": ("ResolveControlFlow", "has_control_flow"),
        },
    )

__all__ = [
    "FuseScans",
    "ResolveControlFlow",
    "has_control_flow",
]
