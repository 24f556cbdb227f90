"""Walk an ONNX graph and write it as an op graph, node by node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from perfc.frontends.onnx.node import OnnxNode
from perfc.frontends.onnx.op_map import REGIONS, lower_node
from perfc.frontends.onnx.op_map_shapes import constant_attributes
from perfc.frontends.onnx.opsets import (
    DEFAULT_DOMAINS,
    check_ir_version,
    check_opset,
    read_opsets,
)
from perfc.frontends.onnx.order import in_dependency_order, names_captured
from perfc.frontends.onnx.protobuf import onnx
from perfc.frontends.onnx.reader import (
    Constant,
    convert_attribute,
    convert_tensor,
    convert_type,
    utf8,
)
from perfc.ir import (
    BUILTIN_OPS,
    AttrValue,
    Graph,
    Location,
    Program,
    TensorType,
    UnsupportedModelError,
    Value,
    single,
    verify,
)

_SOURCE_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_LEGACY_SCOPE = re.compile(r"/(?:[^/]+/)*")
_TARGET = "target=torch.ops."


def import_model(model: onnx.ModelProto, name: str, sha256: str) -> Program:
    """Return *model* as a program for rank 0.

    Raises:
        UnsupportedModelError: the model contradicts itself, or needs an opset
            that is not supported.
        VerifyError: it assigns a name twice, or nests too deep.

    """
    check_ir_version(model.ir_version)
    opset = check_opset(read_opsets(model.opset_import).get(""), "the model")
    if not model.graph.output:
        msg = "the graph has no outputs, so there is nothing to compute"
        raise UnsupportedModelError(msg)
    graph = Graph(name)
    _Importer(graph, {}, opset).read(model.graph)
    verify(graph, BUILTIN_OPS)
    return attrs.evolve(single(graph), sha256=sha256)


@attrs.define(eq=False)
class _Importer:
    """Writes one ONNX graph into one op graph."""

    graph: Graph
    constants: dict[Value, Constant]
    opset: int

    def read(self, proto: onnx.GraphProto) -> None:
        """Write inputs, initializers, nodes and outputs."""
        for tensor in proto.initializer:
            self._add_initializer(tensor)
        for info in proto.input:
            if self.graph.find(info.name) is None or self.graph.parent is not None:
                self._add_input(info)
        declared = {info.name: info for info in proto.value_info}
        declared.update((info.name, info) for info in proto.output)
        for node in in_dependency_order(proto):
            self._add_node(node, declared)
        for info in proto.output:
            self.graph.outputs.append(self._value(info.name, "an output of the graph"))

    def _value(self, name: str, reader: str) -> Value:
        value = self.graph.find(name)
        if value is None:
            msg = f"{name!r} is read by {reader}, but nothing defines it"
            raise UnsupportedModelError(msg)
        return value

    def _add_input(self, info: onnx.ValueInfoProto) -> None:
        is_model_input = self.graph.parent is None
        type_ = convert_type(info, name_open_dims=is_model_input)
        if is_model_input:
            if type_ is None:
                msg = f"input {info.name!r} has no tensor type with a known rank"
                raise UnsupportedModelError(msg)
            if any(isinstance(dim, int) and dim == 0 for dim in type_.shape):
                msg = (
                    f"input {info.name!r} has no elements ({type_}); "
                    "export the model with a positive size"
                )
                raise UnsupportedModelError(msg)
        self.graph.add_input(utf8(info.name), type_)

    def _add_initializer(self, tensor: onnx.TensorProto) -> None:
        """A scalar or an integer tensor is a constant, a float one a parameter."""
        name = utf8(tensor.name)
        constant = convert_tensor(tensor, f"initializer {name!r}")
        is_weight = constant.type.dtype.is_float and constant.type.rank > 0
        if is_weight and not _is_neutral(constant) and self.graph.parent is None:
            value = self.graph.add_parameter(name, constant.type)
        else:
            attributes = constant_attributes(constant)
            node = self.graph.add("constant", (), [name], attributes)
            value = node.results[0]
            value.type = constant.type
        self.constants[value] = constant

    def _add_node(
        self, proto: onnx.NodeProto, declared: Mapping[str, onnx.ValueInfoProto]
    ) -> None:
        if not proto.op_type:
            msg = f"node {proto.name!r} has no op type"
            raise UnsupportedModelError(msg)
        attributes: dict[str, AttrValue] = {}
        tensors: dict[str, onnx.TensorProto] = {}
        graphs: dict[str, onnx.GraphProto] = {}
        for attribute in proto.attribute:
            attributes[attribute.name] = convert_attribute(attribute)
            if attribute.type == onnx.AttributeProto.TENSOR:
                tensors[attribute.name] = attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                graphs[attribute.name] = attribute.g
        default = proto.domain in DEFAULT_DOMAINS
        op = utf8(proto.op_type if default else f"{proto.domain}::{proto.op_type}")
        regions = self._regions(proto, op, graphs) if op in REGIONS else {}
        captured = self._captured(proto) if graphs and not regions else ()
        node = OnnxNode(
            op=op,
            operands=(*self._operands(proto), *captured),
            results=_result_names(proto),
            attributes=attributes,
            tensors=tensors,
            regions=regions,
            location=_location(proto),
            graph=self.graph,
            constants=self.constants,
            opset=self.opset,
        )
        lower_node(node)
        self._declare(node.results, declared)

    def _operands(self, proto: onnx.NodeProto) -> Iterator[Value | None]:
        reader = f"{proto.op_type} {proto.name!r}"
        for name in proto.input:
            yield self._value(name, reader) if name else None

    def _captured(self, proto: onnx.NodeProto) -> Iterator[Value]:
        """Values of this graph that graphs of *proto* read."""
        for name in sorted(set(names_captured(proto))):
            value = self.graph.find(name)
            if value is not None:
                yield value

    def _regions(
        self, proto: onnx.NodeProto, op: str, graphs: Mapping[str, onnx.GraphProto]
    ) -> dict[str, Graph]:
        regions: dict[str, Graph] = {}
        for name in REGIONS[op]:
            if name not in graphs:
                msg = f"{op} {proto.name!r} has no graph {name!r}"
                raise UnsupportedModelError(msg)
            regions[name] = self._region(graphs[name], op)
        return regions

    def _declare(
        self, names: Sequence[str], declared: Mapping[str, onnx.ValueInfoProto]
    ) -> None:
        """Set the types that the file declares; shape inference checks them."""
        for name in names:
            if name in declared:
                value = self.graph.find(name)
                type_: TensorType | None = convert_type(declared[name])
                if value is not None and value.type is None:
                    value.type = type_

    def _region(self, proto: onnx.GraphProto, op: str) -> Graph:
        region = Graph(op, self.graph)
        _Importer(region, self.constants, self.opset).read(proto)
        return region


def _is_neutral(constant: Constant) -> bool:
    """Whether it is the column of ones that stands for absent sample weights."""
    return constant.value == 1.0 and constant.type.shape[-1] == 1


def _result_names(proto: onnx.NodeProto) -> tuple[str, ...]:
    """Names of the results; unwanted ones at the end are left out.

    Raises:
        UnsupportedModelError: an unwanted result stands between wanted ones.

    """
    names = [utf8(name) for name in proto.output]
    while names and not names[-1]:
        names.pop()
    return tuple(
        name or f"{proto.name or proto.op_type}.unused{index}"
        for index, name in enumerate(names)
    )


def _location(proto: onnx.NodeProto) -> Location:
    metadata = {prop.key: utf8(prop.value) for prop in proto.metadata_props}
    if not metadata:
        name = utf8(proto.name)
        return Location(name=name, module=_legacy_module(name))
    return Location(
        name=utf8(proto.name),
        module=_scopes(metadata.get("pkg.torch.onnx.name_scopes", "")),
        source=_source(metadata.get("pkg.torch.onnx.stack_trace", "")),
        origin=_origin(metadata.get("pkg.torch.onnx.fx_node", "")),
    )


def _legacy_module(name: str) -> str:
    """`/top_l/top_l.0/Gemm` comes from module `top_l.0`."""
    match = _LEGACY_SCOPE.match(name)
    return match[0].strip("/").rpartition("/")[2] if match else ""


def _scopes(text: str) -> str:
    """`['', 'emb_l.0', 'embedding_bag']` comes from module `emb_l.0`."""
    scopes = [part.strip(" '\"") for part in text.strip("[]").split(",")]
    return scopes[-2] if len(scopes) > 1 else ""


def _source(trace: str) -> str:
    """Return the innermost line of the model's own code."""
    lines: Iterable[tuple[str, str]] = _SOURCE_LINE.findall(trace)
    own = [(f, n) for f, n in lines if "site-packages" not in f and "torch/" not in f]
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""


def _origin(text: str) -> str:
    """Keep `aten.x(args)` of `%x : … = call_function[target=torch.ops.aten.x](…)`."""
    start = text.find(_TARGET)
    if start < 0:
        return ""
    return (
        text[start + len(_TARGET) :]
        .replace("](", "(", 1)
        .removesuffix(", kwargs = {})")
    )
