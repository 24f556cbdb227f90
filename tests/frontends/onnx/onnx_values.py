"""Numbers for the ONNX fixtures: weights, inputs, and the reference run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

Array = npt.NDArray[np.generic]
Node = onnx.NodeProto

_PASSES_INDICES = {"Cast", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}
_FAILS_ON_EMPTY = {"ReduceMax", "ReduceMean"}
_INDICES = 1  # input of a Gather
_TABLE_RANK = 2


def fill(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """Copy `model` with normal random values in every external stub."""
    filled = onnx.ModelProto()
    filled.CopyFrom(model)
    for tensor in filled.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            values = rng.standard_normal(tuple(tensor.dims)).astype(dtype)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return filled


def random_inputs(
    model: onnx.ModelProto, batch: int, pooling: int, rng: np.random.Generator
) -> dict[str, Array]:
    """Make valid inputs for a DLRM or bag fixture, by the names of its inputs.

    `batch` and `pooling` are used where the file leaves them open. Bags differ
    in length, and some are empty where the file allows it.
    """
    maker = _InputMaker(model, batch, pooling, rng)
    return {i.name: maker.make(i) for i in model.graph.input}


def run_reference(
    model: onnx.ModelProto, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Run `model` in onnxruntime."""
    runtime: Any = import_module("onnxruntime")  # untyped
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it warns of initializers that nobody uses
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names: list[str] = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def allows_empty_bags(model: onnx.ModelProto) -> bool:
    """Whether a bag may be empty.

    The legacy exporter reduces a bag without a look at its length, and neither
    a mean nor a maximum of nothing is a number.
    """
    bodies = [_graphs(node) for node in _nodes(model.graph) if node.op_type == "Loop"]
    for body in (graph for graphs in bodies for graph in graphs):
        ops = {node.op_type for node in _nodes(body)}
        if ops & _FAILS_ON_EMPTY and "If" not in ops:
            return False
    return True


def rows_read_by(model: onnx.ModelProto, name: str) -> int:
    """Rows of the table that the indices `name` select from.

    Where no path leads to a Gather, the rows of the smallest table.
    """
    tables: dict[str, int] = {
        t.name: t.dims[0]
        for t in model.graph.initializer
        if len(t.dims) == _TABLE_RANK and t.data_type != onnx.TensorProto.INT64
    }
    carriers = {name}
    smallest = max(tables.values())
    for node in _nodes(model.graph):
        if node.op_type in _PASSES_INDICES and node.input[0] in carriers:
            carriers.update(node.output)
        if node.op_type != "Gather" or node.input[0] not in tables:
            continue
        rows = tables[node.input[0]]
        if node.input[_INDICES] in carriers:
            return rows
        smallest = min(smallest, rows)
    return smallest


class _InputMaker:
    """Makes one input at a time; the inputs of a bag agree in length."""

    def __init__(
        self,
        model: onnx.ModelProto,
        batch: int,
        pooling: int,
        rng: np.random.Generator,
    ) -> None:
        """Read what the inputs share from the model."""
        self._model = model
        self._rng = rng
        self._empty = allows_empty_bags(model)
        shapes = {i.name: _shape(i) for i in model.graph.input}
        starts = [s for name, s in shapes.items() if name.startswith("offsets")]
        known = [s[0] for s in starts if s[0]]
        self._batch = known[0] if known else batch
        self._pooling = pooling
        self._lengths = {
            _suffix(name): shape[0]
            for name, shape in shapes.items()
            if name.startswith("indices") and len(shape) == 1
        }
        for k, (suffix, length) in enumerate(self._lengths.items()):
            self._lengths[suffix] = length or self._batch * pooling + k

    def make(self, info: onnx.ValueInfoProto) -> Array:
        """Make the values of one input."""
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        shape = _shape(info)
        values: Array
        kind, suffix = info.name.partition("_")[0], _suffix(info.name)
        if kind == "dense":
            values = self._rng.standard_normal((shape[0] or self._batch, *shape[1:]))
        elif kind == "weights":
            values = self._rng.uniform(0.5, 1.5, self._lengths[suffix])
        elif kind == "offsets":
            values = self._offsets(self._lengths[suffix])
        elif kind == "bounds":
            length = self._lengths[suffix]
            values = np.append(self._offsets(length), length)
        elif kind == "indices":
            values = self._indices(info.name, shape)
        else:
            msg = f"input {info.name!r} has no known role"
            raise ValueError(msg)
        return values.astype(dtype)

    def _indices(self, name: str, shape: list[int]) -> npt.NDArray[np.int64]:
        """Pick rows of the table that is read."""
        if len(shape) == 1:
            size = [self._lengths[_suffix(name)]]
        else:
            size = [shape[0] or self._batch, shape[1] or self._pooling]
        return self._rng.integers(0, rows_read_by(self._model, name), size)

    def _offsets(self, length: int) -> npt.NDArray[np.int64]:
        """Cut `length` indices into bags."""
        count = self._batch - 1
        if self._empty:
            cuts = self._rng.integers(0, length + 1, count)
            cuts[: count // 2] = cuts[0] if count else 0  # bags between are empty
        else:
            cuts = self._rng.choice(np.arange(1, length), count, replace=False)
        return np.concatenate([[0], np.sort(cuts)])


def _suffix(name: str) -> str:
    """The number of the bag that an input belongs to."""
    return name.partition("_")[2]


def _shape(info: onnx.ValueInfoProto) -> list[int]:
    """Dimensions of an input, 0 where the file leaves one open."""
    return [dim.dim_value for dim in info.type.tensor_type.shape.dim]


def _graphs(node: Node) -> list[onnx.GraphProto]:
    """Graphs inside a node."""
    kind = onnx.AttributeProto.GRAPH
    return [a.g for a in node.attribute if a.type == kind]


def _nodes(graph: onnx.GraphProto) -> Iterator[Node]:
    """Every node of `graph` and of the graphs inside it."""
    for node in graph.node:
        yield node
        for inner in _graphs(node):
            yield from _nodes(inner)
