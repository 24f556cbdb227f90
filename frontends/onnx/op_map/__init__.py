"""ONNX op types to perfc ops, by family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.onnx.op_map.registry import REGIONS, is_known, lower_node
    from perfc.frontends.onnx.op_map.shapes import constant_attributes
else:
    __getattr__ = door(
        __name__,
        {
            "registry": ("REGIONS", "is_known", "lower_node"),
            "shapes": ("constant_attributes",),
        },
    )

__all__ = [
    "REGIONS",
    "constant_attributes",
    "is_known",
    "lower_node",
]
