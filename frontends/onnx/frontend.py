"""The frontend of ONNX files."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message import EncodeError

from perfc.frontends.files import digest, read_file
from perfc.frontends.onnx.importer import import_model
from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import parse_model
from perfc.ir import PerfcError, Program
from perfc.ir.support import UnsupportedModelError, printable


class OnnxFrontend:
    """Reads `.onnx` files as both PyTorch exporters and others write them."""

    def load(self, path: Path) -> Program:
        """Read *path*; initializers stay on disk, only their types are used."""
        return _imported(read_file(path), printable(path.stem), str(path))

    def read(self, model: onnx.ModelProto) -> Program:
        """Read a model that is in memory, called what its graph is called."""
        name = printable(model.graph.name) or "model"
        try:
            data = model.SerializeToString()
        except (ValueError, EncodeError) as error:
            msg = f"{name}: {error}; keep its weights out, and give the file"
            raise UnsupportedModelError(msg) from None
        return _imported(data, name, name)


def _imported(data: bytes, name: str, where: str) -> Program:
    try:
        return import_model(parse_model(data), name, digest(data))
    except PerfcError as error:
        msg = f"{where}: {error}"
        raise type(error)(msg) from None
