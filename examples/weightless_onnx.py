"""Take the weights and the machine's paths out of an exported ONNX model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx

WEIGHTS_FILE = "weights.bin"
INLINE_BYTES = 1024  # a bigger weight becomes a stub
ROOT = Path(__file__).resolve().parents[1]

_FRAME = re.compile(r'File "([^"]+)"')


def strip(model: onnx.ModelProto, rows: Mapping[str, int] | None = None) -> bytes:
    """Replace large weights by stubs and return the file's bytes.

    A stub is an initializer whose data lie in `WEIGHTS_FILE`, which nobody
    writes: it keeps the name, the element type and the dimensions. `rows` gives
    tables their true number of rows if they were exported with fewer. Integers
    are constants of the graph and stay.
    """
    rows = rows or {}
    end = 0
    for tensor in model.graph.initializer:
        if tensor.name in rows:
            tensor.dims[0] = rows[tensor.name]
        floating = tensor.data_type == onnx.TensorProto.FLOAT
        size = _size(tensor)
        if floating and size > INLINE_BYTES:
            _make_stub(tensor, end, size)
            end += size
        elif tensor.name in rows:
            msg = f"{tensor.name} has other rows than its data"
            raise ValueError(msg)
    _scrub(model)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _size(tensor: onnx.TensorProto) -> int:
    """Bytes of the data of `tensor` in a file."""
    size: int = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    for dim in tensor.dims:
        size *= dim
    return size


def _make_stub(tensor: onnx.TensorProto, offset: int, length: int) -> None:
    """Let the data of `tensor` lie in the file that is never written."""
    stub = onnx.TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    place = {"location": WEIGHTS_FILE, "offset": str(offset), "length": str(length)}
    for key, value in place.items():
        stub.external_data.add(key=key, value=value)
    tensor.CopyFrom(stub)


def _scrub(model: onnx.ModelProto) -> None:
    """Shorten the file names in recorded stack traces."""
    for node in _nodes(model.graph):
        for prop in node.metadata_props:
            prop.value = _FRAME.sub(_short_frame, prop.value)
        node.doc_string = _FRAME.sub(_short_frame, node.doc_string)


def _short_frame(match: re.Match[str]) -> str:
    """Name a source file from the repository or from `site-packages` on."""
    path = Path(match[1])
    if path.is_relative_to(ROOT):
        return f'File "{path.relative_to(ROOT).as_posix()}"'
    installed = path.as_posix().partition("/site-packages/")[2]
    return f'File "{installed or path.name}"'


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node of `graph` and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)
