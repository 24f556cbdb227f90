"""Every node test of the installed onnx: what each op makes, in type and shape.

The cases come with inputs and expected outputs (`onnx.backend.test`). They are
read twice: as they are, and with short inputs written into the model, because
what a file computes sizes from (axes, repeats, scales) is constant in practice.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from perfc.costmodels import cost_models
from perfc.frontends.onnx import OnnxFrontend
from perfc.ir import PerfcError, Program, TensorType
from perfc.ir.dims import Expr
from perfc.passes import LAUNCHES, LowerKernels, PassManager, ShapeInference
from perfc.passes.facts import ELEMENTS
from perfc.passes.shapes import FoldShapes

Array = npt.NDArray[Any]

OTHER_OPS = frozenset(
    {
        *("If", "Loop", "Scan", "SequenceMap", "SplitToSequence"),
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase"),
        *("SequenceInsert", "SequenceLength", "ConcatFromSequence"),
        *("Optional", "OptionalGetElement", "OptionalHasElement"),
        *("Attention", "RotaryEmbedding", "RMSNormalization", "LayerNormalization"),
        *("GroupNormalization", "InstanceNormalization"),
        *("Swish", "Mish", "HardSwish"),
    }
)
"""Ops of control flow, sequences, attention and norms, tested elsewhere."""

OTHER_CASES = {
    "test_identity_sequence": "a sequence as input",
    "test_identity_opt": "an optional as input",
}

DATA_DEPENDENT = frozenset({"NonMaxSuppression", "Unique", "ImageDecoder", "NonZero"})
"""Ops that always have a dimension that data decide; and those over strings, of
which no model input is ever constant."""

WITHOUT_CASE = frozenset(
    {
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "Multinomial"),
        *("GlobalLpPool", "MaxRoiPool"),
    }
)
"""Ops for which onnx has no case."""

ROOFLINE = frozenset(
    {
        *("affine_grid", "col2im", "grid_sample", "interpolate", "pad", "roi_pool"),
        *("deformable_im2col", "fft", "lu", "nll_loss", "nms"),
        *("causal_conv", "linear_attention"),
        *("select", "sort"),
    }
)
"""Kernels of known work that no model of their own prices: nobody has published
measurements to fit one, so they get the roofline and its wide interval."""

HOST_OPS = frozenset({"host_text", "mel_weight_matrix"})
"""Ops that no kernel does: reported, and costed by their bytes."""

_SHORT = 64
_SIZES = (
    *(TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL),
    *(TensorProto.FLOAT, TensorProto.DOUBLE),
    *(TensorProto.FLOAT16, TensorProto.BFLOAT16),
)
_DTYPES: Mapping[str, str] = {
    "FLOAT": "f32",
    "DOUBLE": "f64",
    "FLOAT16": "f16",
    "BFLOAT16": "bf16",
    "FLOAT8E4M3FN": "f8e4m3",
    "FLOAT8E4M3FNUZ": "f8e4m3",
    "FLOAT8E5M2": "f8e5m2",
    "FLOAT8E5M2FNUZ": "f8e5m2",
    "FLOAT8E8M0": "f8e8m0",
    "FLOAT6E2M3": "f6e2m3",
    "FLOAT6E3M2": "f6e3m2",
    "FLOAT4E2M1": "f4e2m1",
    "COMPLEX64": "c64",
    "COMPLEX128": "c128",
    "BOOL": "bool",
    "STRING": "string",
}


_OLDEST = 11
"""The oldest opset that is read."""


@attrs.frozen(eq=False)
class Case:
    """One of onnx's cases.

    Attributes:
        name: What onnx calls it.
        model: The model, without what it says of its outputs' shapes.
        inputs: Inputs, in order.
        outputs: What it has to return.

    """

    name: str
    model: onnx.ModelProto
    inputs: Sequence[TensorProto]
    outputs: Sequence[TensorProto]

    @property
    def ops(self) -> frozenset[str]:
        """Op types, with their domain where it is not the default one."""
        return frozenset(
            f"{n.domain}::{n.op_type}" if n.domain else n.op_type
            for n in self.model.graph.node
        )


@functools.cache
def _cases() -> tuple[Case, ...]:
    """Collect the cases whose ops are in the vocabulary under test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own arithmetic overflows at will
        collected: Any = collect_testcases(None)
    cases = [_case(f) for f in collected if _has_tensors(f) and _is_read(f.model)]
    return tuple(
        case
        for case in cases
        if case.name not in OTHER_CASES
        and not case.ops & OTHER_OPS
        and not any("::" in op for op in case.ops)
    )


def _is_read(model: onnx.ModelProto) -> bool:
    """Whether the model's ops mean the same in an opset that is read."""
    (opset,) = {o.version for o in model.opset_import if not o.domain} or {_OLDEST}
    names = {n.op_type for n in model.graph.node if not n.domain}
    return opset >= _OLDEST or all(
        onnx.defs.has(name)
        and onnx.defs.get_schema(name, opset).since_version
        == onnx.defs.get_schema(name, _OLDEST).since_version
        for name in names
    )


def _has_tensors(found: Any) -> bool:
    values = [value for data in found.data_sets[0] for value in data]
    return not any(isinstance(value, list | dict) or value is None for value in values)


def _case(found: Any) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(found.model)
    for imported in model.opset_import:
        if not imported.domain:
            imported.version = max(imported.version, _OLDEST)
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    inputs, outputs = ([_tensor(v) for v in data] for data in found.data_sets[0])
    return Case(found.name, model, inputs, outputs)


def _tensor(value: Any) -> TensorProto:
    if isinstance(value, TensorProto):
        return value
    return numpy_helper.from_array(np.asarray(value))


def _with_constants(case: Case) -> onnx.ModelProto:
    """Write short inputs, and empty ones, into the model."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for info, tensor in zip(case.model.graph.input, case.inputs, strict=True):
        short = tensor.data_type in _SIZES and math.prod(tensor.dims) <= _SHORT
        if (short and len(tensor.dims) < 2) or 0 in tensor.dims:
            model.graph.initializer.add().CopyFrom(tensor)
            model.graph.initializer[-1].name = info.name
            model.graph.input.remove(info)
    return model


def _as_it_is(case: Case) -> onnx.ModelProto:
    return case.model


def _problems(
    case: Case, model: onnx.ModelProto, path: Path, *, exact: bool
) -> Iterator[str]:
    """Yield what is wrong with the types that the load pipeline finds."""
    path.write_bytes(model.SerializeToString())
    program = OnnxFrontend().load(path)
    analysis = PassManager([ShapeInference(), FoldShapes()]).run(program)
    graph = analysis.program.classes[0].ops
    assert graph is not None
    if not any(value.type and value.type.symbols() for value in graph.values()):
        yield from _unmodelled(program)
    yield from (str(node.attributes["op"]) for node in graph if node.op == "unknown")
    elements = analysis.annotations.get(ELEMENTS, graph, None)
    for value, expected in zip(graph.outputs, case.outputs, strict=True):
        assert value.type is not None
        if not _agrees(value.type, expected, exact=exact):
            yield f"{value.name}: {value.type} is not {_type_text(expected)}"
        known = elements.get(value)
        if known is not None and not _equals(known, expected):
            yield f"{value.name}: {known} is not {numpy_helper.to_array(expected)}"


def _unmodelled(program: Program) -> Iterator[str]:
    """Lower to launches; yield the kernels that no model knows, and no list here."""
    manager = PassManager([ShapeInference(), FoldShapes(), LowerKernels()])
    analysis = manager.run(program)
    (graph,) = analysis.annotations.get(LAUNCHES, program, analysis.scenario)
    modelled = {op for cost_model in cost_models() for op in cost_model.ops or ()}
    for kernel in graph.kernels:
        listed = modelled | ROOFLINE if kernel.known else HOST_OPS
        if kernel.op not in listed:
            yield f"{kernel.op} is not modelled"


def _equals(elements: Sequence[object], expected: TensorProto) -> bool:
    array: Array = numpy_helper.to_array(expected)
    return list(elements) == array.astype(np.int64).ravel().tolist()


def _agrees(found: TensorType, expected: TensorProto, *, exact: bool) -> bool:
    if len(found.shape) != len(expected.dims) or found.dtype.name != _dtype(expected):
        return False
    if exact and found.symbols():
        return False
    pairs = zip(found.shape, expected.dims, strict=True)
    return all(isinstance(dim, Expr) or dim == size for dim, size in pairs)


def _dtype(tensor: TensorProto) -> str:
    name = TensorProto.DataType.Name(tensor.data_type)
    return _DTYPES.get(name, name.lower().replace("uint", "u").replace("int", "i"))


def _type_text(tensor: TensorProto) -> str:
    return f"{_dtype(tensor)}{list(tensor.dims)}"


def _failures(
    rewrite: Callable[[Case], onnx.ModelProto],
    may_depend: Callable[[Case], bool],
    path: Path,
) -> dict[str, list[str]]:
    failures: dict[str, list[str]] = {}
    for case in _cases():
        exact = not may_depend(case)
        try:
            found = list(_problems(case, rewrite(case), path, exact=exact))
        except PerfcError as error:
            found = [str(error)]
        if found:
            failures[case.name] = found
    return failures


def test_constant_sizes(tmp_path: Path) -> None:
    """Every output has the type and the shape that onnx says, and no op is unknown."""
    failures = _failures(
        _with_constants,
        lambda case: bool(case.ops & DATA_DEPENDENT or _has_strings(case)),
        tmp_path / "case.onnx",
    )

    assert {} == failures


def test_roofline_is_a_fallback() -> None:
    """What stands under the roofline has no model, and no model has lost its kernel."""
    modelled = {op for cost_model in cost_models() for op in cost_model.ops or ()}

    assert set() == ROOFLINE & modelled


def test_computed_sizes(tmp_path: Path) -> None:
    """What depends on an input gets a symbol, and the rest is right all the same."""
    failures = _failures(_as_it_is, lambda case: True, tmp_path / "case.onnx")

    # An axis that is an input leaves every size open.
    assert failures.keys() <= {case.name for case in _cases() if "DFT" in case.ops}


def _has_strings(case: Case) -> bool:
    return any(tensor.data_type == TensorProto.STRING for tensor in case.inputs)


def test_most_of_onnx_is_covered() -> None:
    """The sweep is no smaller than it claims: nearly every op has a case in it."""
    swept = {op for case in _cases() for op in case.ops}
    known = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if not schema.domain
        and not (schema.deprecated and schema.since_version <= _OLDEST)
    }

    assert set() == known - swept - OTHER_OPS - WITHOUT_CASE
    assert 1500 < len(_cases())
