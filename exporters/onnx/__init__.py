"""The model with its times in the metadata of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.exporters.onnx.metadata import OnnxMetadata
    from perfc.exporters.onnx.nodes import OnnxNodes, read_onnx
else:
    __getattr__ = door(
        __name__,
        {
            "metadata": ("OnnxMetadata",),
            "nodes": ("OnnxNodes", "read_onnx"),
        },
    )

__all__ = [
    "OnnxMetadata",
    "OnnxNodes",
    "read_onnx",
]
