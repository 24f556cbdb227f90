"""ONNX files, read with the ONNX protobuf alone; weights are never loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.frontends.onnx.frontend import OnnxFrontend
else:
    __getattr__ = door(
        __name__,
        {
            "frontend": ("OnnxFrontend",),
        },
    )

__all__ = [
    "OnnxFrontend",
]
