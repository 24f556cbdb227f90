"""ONNX files, read with the ONNX protobuf alone; weights are never loaded."""

from __future__ import annotations

from perfc.frontends.onnx.frontend import OnnxFrontend

__all__ = ["OnnxFrontend"]
