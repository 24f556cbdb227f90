"""ATen ops to perfc ops, by family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.aten.op_map.elementwise import ELEMENTWISE_HANDLERS
    from perfc.frontends.aten.op_map.registry import find_handler
else:
    __getattr__ = door(
        __name__,
        {
            "elementwise": ("ELEMENTWISE_HANDLERS",),
            "registry": ("find_handler",),
        },
    )

__all__ = [
    "ELEMENTWISE_HANDLERS",
    "find_handler",
]
