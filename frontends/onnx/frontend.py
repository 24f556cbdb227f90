"""The frontend of ONNX files."""

from __future__ import annotations

from pathlib import Path

from perfc.frontends.files import digest, read_file
from perfc.frontends.onnx.importer import import_model
from perfc.frontends.onnx.reader import parse_model
from perfc.ir import PerfcError, Program
from perfc.ir.support import printable


class OnnxFrontend:
    """Reads `.onnx` files as both PyTorch exporters and others write them."""

    def load(self, path: Path) -> Program:
        """Read *path*; initializers stay on disk, only their types are used.

        Raises:
            UnsupportedModelError: the file is damaged or not ONNX.
            VerifyError: its graph is not in single-assignment form.

        """
        data = read_file(path)
        try:
            return import_model(parse_model(data), printable(path.stem), digest(data))
        except PerfcError as error:
            msg = f"{path}: {error}"
            raise type(error)(msg) from None
