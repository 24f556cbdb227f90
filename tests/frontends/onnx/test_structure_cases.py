"""ONNX's own test cases of control flow, sequences and optional tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frontends.onnx.node_cases import cases_of

import perfc
from perfc.ir.dims import evaluate

Shapes = list[tuple[int, ...]]
Data = Any
_MODULES = (
    *("if_", "loop", "scan", "sequence_map", "sequenceinsert", "splittosequence"),
    *("optionalgetelement", "optionalhaselement", "identity"),
)
_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data" / "simple"
_SEQUENCES = sorted(_DATA.glob("test_sequence_model[1-8]"))
# Scan had another form in opset 8.
_OLDER = frozenset({"test_scan_sum"})


CASES = {name: case for name, case in cases_of(_MODULES).items() if name not in _OLDER}


@pytest.mark.parametrize("name", CASES)
def test_shapes_are_those_that_onnx_expects(name: str, tmp_path: Path) -> None:
    """No loop, branch, sequence or unknown op is left; results have their shapes."""
    case = CASES[name]
    inputs, outputs = case.data_sets[0]
    model = _fixed(case.model, inputs)

    assert list(_shapes(outputs)) == _loaded(model, tmp_path)


@pytest.mark.parametrize("case", _SEQUENCES, ids=lambda path: str(path.name))
def test_models_of_sequences(case: Path, tmp_path: Path) -> None:
    """So do ONNX's small models that build and take apart sequences."""
    model = onnx.load(case / "model.onnx")
    data = case / "test_data_set_0"
    inputs = [
        numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))
        for path in sorted(data.glob("input_*.pb"))
    ]
    outputs: list[Data] = []
    for output, path in zip(
        model.graph.output, sorted(data.glob("output_*.pb")), strict=True
    ):
        if output.type.HasField("sequence_type"):
            sequence = onnx.SequenceProto.FromString(path.read_bytes())
            outputs.append([numpy_helper.to_array(t) for t in sequence.tensor_values])
        else:
            tensor = TensorProto.FromString(path.read_bytes())
            outputs.append(numpy_helper.to_array(tensor))

    assert list(_shapes(outputs)) == _loaded(_fixed(model, inputs), tmp_path)


def _loaded(model: onnx.ModelProto, folder: Path) -> Shapes:
    """Return the shapes of the outputs; nothing in the graph may be opaque."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    graph = perfc.load(path).program.classes[0].ops
    assert graph is not None
    assert {"unknown", "loop", "if", "scan"}.isdisjoint(node.op for node in graph)
    assert not any("sequence" in node.op for node in graph)
    types = [value.type for value in graph.outputs]
    assert not any(type_ is None or type_.symbols() for type_ in types)
    return [tuple(evaluate(d, {}) for d in t.shape) for t in types if t is not None]


def _shapes(data: Data) -> Iterator[tuple[int, ...]]:
    if _is_sequence(data):
        for item in data:
            yield from _shapes(item)
    else:
        yield np.asarray(data).shape


def _is_sequence(data: Data) -> bool:
    return isinstance(data, list | tuple)


def _fixed(model: onnx.ModelProto, inputs: Sequence[Data]) -> onnx.ModelProto:
    """Write into the model what decides its control flow.

    Integers become initializers; sequences are made of inputs of their own; what
    is optional is there or not. Opset 9 to 11 changed nothing here.
    """
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for entry in fixed.opset_import:
        entry.version = max(11, entry.version)
    given = {tensor.name for tensor in model.graph.initializer}
    infos = [info for info in model.graph.input if info.name not in given]
    del fixed.graph.input[:]
    made: list[onnx.NodeProto] = []
    for info, data in zip(infos, inputs, strict=True):
        _add_input(fixed.graph, made, info, data)
    nodes = [*made, *fixed.graph.node]
    del fixed.graph.node[:]
    fixed.graph.node.extend(nodes)
    return fixed


def _add_input(
    graph: onnx.GraphProto,
    made: list[onnx.NodeProto],
    info: onnx.ValueInfoProto,
    data: Data,
) -> None:
    if data is None or (_is_sequence(data) and any(x is None for x in data)):
        kind = info.type.optional_type.elem_type
        made.append(helper.make_node("Optional", [], [info.name], type=kind))
    elif _is_sequence(data):
        names = [f"{info.name}_{index}" for index in range(len(data))]
        for name, item in zip(names, data, strict=True):
            _add_tensor(graph, name, np.asarray(item))
        op = "SequenceConstruct" if names else "SequenceEmpty"
        made.append(helper.make_node(op, names, [info.name]))
    else:
        _add_tensor(graph, info.name, np.asarray(data))


def _add_tensor(graph: onnx.GraphProto, name: str, data: np.ndarray[Any, Any]) -> None:
    if data.dtype.kind in "bi":
        graph.initializer.append(numpy_helper.from_array(data, name))
        return
    kind = helper.np_dtype_to_tensor_dtype(data.dtype)
    graph.input.append(helper.make_tensor_value_info(name, kind, data.shape))
