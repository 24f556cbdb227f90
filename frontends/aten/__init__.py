"""Calls of ATen ops, as recorded or read from an archive, to op graphs. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.aten.builder import AtenBuilder
    from perfc.frontends.aten.call import (
        MOST_ELEMENTS,
        READ_ELEMENTS,
        Argument,
        AtenCall,
        AtenTensor,
        Ref,
    )
    from perfc.frontends.aten.node import call_label
    from perfc.frontends.aten.op_map import find_handler
    from perfc.frontends.aten.recorded import NotRecordedError, RecordedGraph
else:
    __getattr__ = door(
        __name__,
        {
            "builder": ("AtenBuilder",),
            "call": (
                "MOST_ELEMENTS",
                "READ_ELEMENTS",
                "Argument",
                "AtenCall",
                "AtenTensor",
                "Ref",
            ),
            "node": ("call_label",),
            "op_map": ("find_handler",),
            "recorded": ("NotRecordedError", "RecordedGraph"),
        },
    )

__all__ = [
    "MOST_ELEMENTS",
    "READ_ELEMENTS",
    "Argument",
    "AtenBuilder",
    "AtenCall",
    "AtenTensor",
    "NotRecordedError",
    "RecordedGraph",
    "Ref",
    "call_label",
    "find_handler",
]
